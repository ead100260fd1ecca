// Runs ../tests/scenarios/*.json through the public `Connection`: see the README there for the format.

import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { test } from 'node:test';
import { Connection } from 'countermand';

const FOLDER = new URL('../../tests/scenarios/', import.meta.url);
const files = readdirSync(FOLDER).filter((name) => name.endsWith('.json'));
assert.ok(files.length >= 30, `only ${files.length} scenarios were found`);

for (const file of files.sort()) {
	const scenario = JSON.parse(readFileSync(new URL(file, FOLDER), 'utf8'));
	test(file.replace('.json', ''), () => {
		const run = new Run(scenario.connection ?? {});
		scenario.steps.forEach((step, number) => {
			run.step(step, `step ${number + 1}`);
		});
	});
}

class Run {
	now = 0;
	requests = new Map();
	tokens = new Map();
	calls = new Map();

	constructor({ wire, id_match, early_cancel, alias, limits }) {
		const given = (settings, names) =>
			settings && Object.fromEntries(Object.entries(names).map(([to, from]) => [to, settings[from]]));
		this.connection = new Connection({
			wire,
			idMatch: id_match,
			earlyCancel: given({ max: 64, ...early_cancel }, { holdMs: 'hold_ms', max: 'max' }).holdMs
				? { holdMs: early_cancel.hold_ms, max: early_cancel.max ?? 64 }
				: undefined,
			alias: given(alias, { beyondF64: 'beyond_f64', falsy: 'falsy' }),
			limits: given(limits, {
				maxInFlight: 'max_in_flight',
				maxRetired: 'max_retired',
				retiredAgeMs: 'retired_age_ms',
				maxReasonBytes: 'max_reason_bytes',
				maxIdBytes: 'max_id_bytes',
				maxTasks: 'max_tasks',
				maxOutbound: 'max_outbound',
				maxTombstones: 'max_tombstones',
				tombstoneAgeMs: 'tombstone_age_ms',
			}),
		});
	}

	step(step, at) {
		const { connection, now, requests, tokens, calls } = this;
		const { expect } = step;
		const received = frame(step, 'receive');
		const sent = frame(step, 'send');
		if (received !== undefined) this.receive(received, step, at);
		else if (sent !== undefined) {
			const { verdict, call, frame, reason } = connection.send(sent, now, tokens.get(step.within));
			if (verdict === 'request') calls.set(step.as, call);
			const verb = verdict === 'rewrite' ? 'write' : verdict;
			if (frame != null) assert.deepEqual(rewritten(verb, frame, expect), expect, at);
			else assert.deepEqual(verdict === 'swallow' ? { swallow: reason } : verdict, expect, at);
		} else if (step.begin) assert.deepEqual(this.begin(step), expect, at);
		else if (step.transmit) assert.equal(connection.transmit(calls.get(step.transmit)), expect, at);
		else if (step.abandon) {
			const cause = step.cause ?? 'local';
			assert.equal(connection.abandon(calls.get(step.abandon), cause, now, step.reason), expect, at);
		} else if (step.outcome) assert.equal(connection.outcome(calls.get(step.outcome)), expect, at);
		else if (step.outputs) {
			const outputs = connection.takeOutputs().map((output) => this.output(output));
			assert.deepEqual(outputs, step.outputs, at);
		} else if (step.start) assert.equal(connection.start(requests.get(step.start), now), expect, at);
		else if (step.finish) assert.equal(connection.finish(requests.get(step.finish), now), expect, at);
		else if (step.discard) connection.discard(requests.get(step.discard));
		else if (step.child) tokens.set(step.as, tokens.get(step.child).child());
		else if (step.token) {
			const token = tokens.get(step.token);
			for (const key of Object.keys(expect)) assert.equal(token[key], expect[key], `${at}: ${key}`);
		} else if (step.trip) {
			assert.equal(tokens.get(step.trip).trip(step.cause ?? 'local', step.reason), expect, at);
		} else if (step.close) {
			const closed = connection.close(step.close, now).map((generation) => this.name(generation));
			assert.deepEqual(closed, expect, at);
		} else if (step.advance_ms !== undefined) {
			this.now += step.advance_ms;
			connection.handleTimeout(this.now);
		} else if (step.stats) {
			if ('tokens' in step.stats) {
				for (const token of tokens.values()) token.release();
				tokens.clear();
			}
			const stats = connection.stats();
			for (const [key, value] of Object.entries(step.stats)) {
				const name = key.replace(/_(.)/g, (_, letter) => letter.toUpperCase());
				assert.equal(stats[name], value, `${at}: ${key}`);
			}
		} else assert.fail(`${at}: no such step: ${JSON.stringify(step)}`);
	}

	begin({ begin: method, params, within, idle_ms, total_ms, progress, as }) {
		const made = this.connection.begin(
			{
				method,
				params: params && JSON.stringify(params),
				idleMs: idle_ms,
				totalMs: total_ms,
				progress,
			},
			this.now,
			this.tokens.get(within),
		);
		if ('refused' in made) return { error: made.refused };
		this.calls.set(as, made.call);
		this.tokens.set(as, made.token);
		return JSON.parse(made.frame);
	}

	output({ output, call, cause, reason, outcome, frame }) {
		switch (output) {
			case 'abandoned':
				return {
					abandoned: this.call(call),
					cause,
					outcome,
					...(reason === undefined ? {} : { reason }),
				};
			case 'close_stream':
				return { close_stream: this.call(call) };
			case 'close_transport':
				return output;
			default:
				return { [output]: JSON.parse(frame) };
		}
	}

	receive(frame, step, at) {
		const verdicts = this.connection.receive(frame, this.now);
		const batch = Array.isArray(step.expect);
		const [names, expects] = batch ? [step.as ?? [], step.expect] : [[step.as], [step.expect]];
		assert.equal(verdicts.length, expects.length, at);
		verdicts.forEach((verdict, number) => {
			const expect = expects[number];
			const seen = this.seen(verdict, names[number] ?? undefined, expect);
			// A reply is only compared where the scenario cares, and never inside a batch.
			if (seen.reject !== undefined && (batch || expect.reply === undefined)) delete seen.reply;
			assert.deepEqual(seen, expect, at);
		});
	}

	seen({ verdict, generation, call, frame, rewritten: changed, silence, reply, reason }, name, expect) {
		switch (verdict) {
			case 'deliver': {
				const tracked = typeof generation === 'number';
				assert.equal(tracked, name !== undefined, 'tracked if and only if named');
				if (tracked) {
					this.requests.set(name, generation);
					this.tokens.set(name, this.connection.token(generation));
				}
				return changed ? rewritten('deliver', frame, expect) : 'deliver';
			}
			case 'cancelled': {
				const cancelled = this.name(generation);
				if (silence === 'nothing') return { cancelled };
				return { cancelled, silence: silence === 'answer' ? JSON.parse(reply) : silence };
			}
			case 'settled':
			case 'progress':
				return { [verdict]: this.call(call) };
			case 'ignored':
				return { ignored: reason };
			default:
				return { reject: reason, reply: JSON.parse(reply) };
		}
	}

	call(id) {
		return [...this.calls].find(([, known]) => known === id)?.[0];
	}

	name(generation) {
		return [...this.requests].find(([, known]) => known === generation)?.[0];
	}
}

function rewritten(verb, bytes, expect) {
	const raw = `${verb}_raw`;
	return expect[raw] === undefined ? { [verb]: JSON.parse(bytes) } : { [raw]: bytes.toString() };
}

function frame(step, verb) {
	return step[verb] === undefined ? step[`${verb}_raw`] : JSON.stringify(step[verb]);
}
