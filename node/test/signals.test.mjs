// What is counted, against the script's own count: as plain data, and through each exporter.

import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import parsePrometheus from 'parse-prometheus-text-format';
import { call, cancel, Peer } from './harness/peer.mjs';

const CANCELS = 1_000;
const MALFORMED = { jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: 1.5 } };

after(() => Peer.end());

const open = () => Peer.open('measured', { script: 'measured.mjs' });
const signals = async (peer) => JSON.parse(await peer.text('signals'));

/** Asks until so many requests of each tool are in flight, and no others. */
async function settled(peer, running = {}) {
	for (let i = 0; i < 400; i++) {
		const seen = await signals(peer);
		const busy = seen.stats.tools.filter(({ tool }) => ['wait', 'linger', 'mail'].includes(tool));
		if (busy.every(({ tool, inFlight }) => inFlight === (running[tool] ?? 0))) return seen;
	}
	assert.fail('requests are still in flight');
}

/** Sends a thousand cancels of every kind, and keeps its own count. */
async function day(peer) {
	const tools = { wait: 0, mail: 0 };
	const hits = { live: 0, late: 0, unknown: 0, malformed: 0, repeated: 0 };
	const kinds = ['wait', 'late', 'wait', 'unknown', 'mail', 'malformed', 'repeated', 'wait'];
	for (let sent = 0; sent < CANCELS; sent++) {
		const kind = kinds[sent % kinds.length];
		const id = Peer.id();
		if (kind === 'wait' || kind === 'mail' || kind === 'repeated') {
			const tool = kind === 'mail' ? 'mail' : 'wait';
			peer.write(call(id, tool, { tag: `${id}` }));
			await peer.event('start', `${id}`);
			if (kind === 'repeated') {
				// In one chunk, so that the handler cannot be gone in between.
				peer.write(cancel(id), cancel(id));
				hits.repeated++;
				sent++;
			} else peer.write(cancel(id, 'said "no"\nand left'));
			tools[tool]++;
			hits.live++;
		} else if (kind === 'late') {
			peer.write(call(id, 'echo'));
			await peer.answer(id);
			peer.write(cancel(id));
			hits.late++;
		} else if (kind === 'unknown') {
			peer.write(cancel(`never was ${id}`));
			hits.unknown++;
		} else {
			peer.write(MALFORMED);
			hits.malformed++;
		}
	}
	return { tools, hits };
}

test('k25_a_scripted_day_is_counted_exactly', async () => {
	const peer = await open();
	const { tools, hits } = await day(peer);
	const { stats, prometheus, metrics } = await settled(peer);
	const row = Object.fromEntries(stats.tools.map((tool) => [tool.tool, tool]));
	assert.deepEqual(stats.cancels, { ...hits, initialize: 0, early: 0 });
	assert.deepEqual(stats.cancelled, { peer: hits.live, timeout: 0, disconnect: 0, shutdown: 0, local: 0 });
	for (const tool of ['wait', 'mail']) {
		const { requests, cancelled, latencyMs, orphans, orphaned } = row[tool];
		assert.deepEqual([requests, cancelled.peer, latencyMs.count], Array(3).fill(tools[tool]), tool);
		assert.deepEqual([orphans, orphaned], [0, 0], tool);
	}
	assert.equal(row.mail.abandonedWithEffects, tools.mail);
	assert.equal(row.wait.abandonedWithEffects, 0);
	assert.deepEqual(stats.orphans, []);

	const families = Object.fromEntries(parsePrometheus(prometheus).map((family) => [family.name, family]));
	const scraped = (name, labels) =>
		families[name].metrics
			.filter((metric) => Object.entries(labels).every(([key, value]) => metric.labels?.[key] === value))
			.reduce((sum, metric) => sum + Number(metric.value), 0);
	assert.equal(scraped('countermand_cancelled_total', { cause: 'peer' }), hits.live);
	for (const [hit, count] of Object.entries(hits)) {
		assert.equal(scraped('countermand_cancels_total', { hit }), count, hit);
	}
	// This reader takes histograms with different labels for one; the Python package's test reads them.
	for (const tool of ['wait', 'mail']) {
		const line = `countermand_cancel_latency_seconds_count{method="tools/call",tool="${tool}"} ${tools[tool]}\n`;
		assert.ok(prometheus.includes(line), line);
	}

	const exported = Object.fromEntries(
		metrics.flatMap((scope) => scope.metrics).map((it) => [it.descriptor.name, it.dataPoints]),
	);
	const observed = (name, key, value) =>
		exported[name]
			.filter((point) => point.attributes[key] === value)
			.reduce((sum, point) => sum + (point.value.count ?? point.value), 0);
	assert.equal(observed('countermand.cancelled', 'countermand.cause', 'peer'), hits.live);
	for (const [hit, count] of Object.entries(hits)) {
		assert.equal(observed('countermand.cancels', 'countermand.hit', hit), count, hit);
	}
	assert.equal(observed('countermand.cancel.latency', 'gen_ai.tool.name', 'wait'), tools.wait);

	const reports = peer.events.all.filter(({ event }) => event === 'report').map(({ report }) => report);
	assert.equal(reports.length, hits.live);
	assert.ok(reports.every(({ cause, latencyMs }) => cause === 'peer' && latencyMs >= 0));
	assert.ok(reports.some(({ reason }) => reason === 'said "no"\nand left'));
});

test('k25_the_log_has_a_line_for_each_cancelled_request', async () => {
	const peer = await Peer.open('measured', {
		script: 'measured.mjs',
		env: { NODE_DEBUG: 'countermand' },
	});
	const id = Peer.id();
	peer.write(call(id, 'wait', { tag: 'logged' }));
	await peer.event('start', 'logged');
	peer.write(cancel(id, 'said "no"\nand left'));
	await peer.events.find(({ event }) => event === 'report', 'the report');
	await peer.settled();
	const line = new RegExp(
		`COUNTERMAND \\d+: cancelled id=${id} tool="wait" cause=peer reason="said \\\\"no\\\\"\\\\nand left" latency=[\\d.]+ ms\\n`,
	);
	assert.match(peer.stderr, line);
});

test('k08_what_outlives_its_grace_is_an_orphan_and_listed', async () => {
	const peer = await open();
	const [stuck, brief] = [Peer.id(), Peer.id()];
	peer.write(
		call(stuck, 'linger', { tag: 'stuck', ms: 1e9 }),
		call(brief, 'linger', { tag: 'brief', ms: 400 }),
	);
	await peer.event('start', 'stuck');
	await peer.event('start', 'brief');
	peer.write(cancel(stuck, 'enough'), cancel(brief));
	await peer.events.find(({ event }) => event === 'report', 'the end of the brief one');
	let seen = await settled(peer, { linger: 1 });
	while (seen.stats.orphans.length === 0) seen = await signals(peer);
	const [orphan] = seen.stats.orphans;
	assert.deepEqual(
		[orphan.id, orphan.tool, orphan.cause, orphan.work],
		[`${stuck}`, 'linger', 'peer', ['handler']],
	);
	assert.ok(orphan.ageMs >= 200);
	const row = seen.stats.tools.find(({ tool }) => tool === 'linger');
	assert.deepEqual([row.orphans, row.orphaned, row.cancelled.peer], [1, 1, 2]);
	assert.ok(row.latencyMs.max >= 390);
});

test('k08_a_thread_and_a_process_that_run_on_are_listed', async () => {
	const peer = await open();
	const [thread, child] = [Peer.id(), Peer.id()];
	peer.write(call(thread, 'thread', { tag: 'thread' }), call(child, 'process', { tag: 'process' }));
	await peer.event('job', 'thread');
	await peer.event('process', 'process');
	peer.write(cancel(thread), cancel(child));
	let seen = await signals(peer);
	while (seen.stats.orphans.length < 2) seen = await signals(peer);
	const work = (id) => seen.stats.orphans.find((orphan) => orphan.id === `${id}`)?.work;
	assert.deepEqual(work(thread), ['thread'], 'its handler has left it behind');
	const [handler, left] = work(child);
	assert.equal(handler, 'handler');
	assert.match(left, /^process \d+$/);
	process.kill(Number(left.slice('process '.length)), 'SIGKILL');
	while (work(child) !== undefined) seen = await signals(peer);
	assert.equal(seen.stats.works, 1);
});
