// Calls with a handle: how they end, and what each end is called.

import assert from 'node:assert/strict';
import { getEventListeners } from 'node:events';
import { after, describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import {
	CancelledError,
	call,
	DisconnectedError,
	RpcError,
	StdioClientTransport,
	stats,
	TimeoutError,
} from 'countermand';
import { leavesNothingOfCalls } from './harness/calls.mjs';
import { CLIENTS, Fake, warnings } from './harness/fakes.mjs';
import { until } from './harness/until.mjs';

setFlagsFromString('--expose-gc');
globalThis.gc ??= runInNewContext('gc');

after(() => Fake.end());

const tool = (fake, name, options) => call(fake.client, 'tools/call', { name }, options);

describe('calls', { concurrency: 1 }, () => {
	for (const sdk of Object.keys(CLIENTS)) {
		test(`k25_each_end_has_its_state_its_outcome_and_its_error_${sdk}`, async () => {
			const fake = await Fake.open(sdk);
			const echo = tool(fake, 'echo');
			assert.equal(echo.state, 'running');
			assert.equal((await echo.result).content[0].text, 'echo');
			assert.deepEqual([echo.state, echo.outcome, echo.cancel()], ['done', 'completed', false]);

			const failed = tool(fake, 'fail');
			const rpc = await failed.result.catch((error) => error);
			assert.ok(rpc instanceof RpcError);
			assert.deepEqual([rpc.code, rpc.message, rpc.data], [-32001, 'no', { why: 'so' }]);
			assert.deepEqual([failed.state, failed.outcome], ['failed', 'completed']);

			const given = tool(fake, 'never');
			assert.equal(given.cancel('the user pressed stop'), true);
			assert.deepEqual([given.state, given.outcome, given.cancel()], ['cancelled', 'unknown', false]);
			const cancelled = await given.result.catch((error) => error);
			assert.ok(cancelled instanceof CancelledError);
			assert.deepEqual(
				[cancelled.name, cancelled.cause, cancelled.reason, cancelled.outcome],
				['AbortError', 'local', 'the user pressed stop', 'unknown'],
			);

			const timed = tool(fake, 'never', { totalMs: 20 });
			const timeout = await timed.result.catch((error) => error);
			assert.ok(timeout instanceof TimeoutError);
			assert.deepEqual([timeout.name, timed.state, timed.outcome], ['TimeoutError', 'timed_out', 'unknown']);

			// By the platform's own timeout, which is one.
			const platform = tool(fake, 'never', { signal: AbortSignal.timeout(20) });
			await assert.rejects(platform.result, { name: 'TimeoutError' });

			const cut = tool(fake, 'never');
			await fake.well();
			const heard = fake.heard.filter(({ method }) => method === 'notifications/cancelled');
			assert.deepEqual(
				heard.map(({ params }) => [params.requestId, params.reason]),
				[
					[given.id, 'the user pressed stop'],
					[timed.id, 'timed out'],
					[platform.id, undefined],
				],
			);
			await fake.close();
			const disconnected = await cut.result.catch((error) => error);
			assert.ok(disconnected instanceof DisconnectedError);
			assert.deepEqual(
				[cut.state, cut.outcome, disconnected.outcome],
				['disconnected', 'unknown', 'unknown'],
			);
		});
	}

	test('k20_the_outcome_is_learnt_from_the_late_response', async () => {
		const fake = await Fake.open('v1');
		for (const [name, outcome] of [
			['late', 'completed'],
			['cancelled', 'cancelled'],
			['never', 'unknown'],
		]) {
			const given = tool(fake, name);
			given.cancel();
			await fake.well();
			assert.deepEqual([given.state, given.outcome], ['cancelled', outcome]);
		}
		await fake.close();
	});

	test('k22_progress_comes_in_order_and_ends_with_the_call', async () => {
		const fake = await Fake.open('v1');
		const told = [];
		const whole = tool(fake, 'progress', { onprogress: ({ progress }) => told.push(progress) });
		const looped = [];
		for await (const { progress, total } of whole.progress) looped.push([progress, total]);
		assert.deepEqual(told, [0, 1, 2]);
		assert.deepEqual(looped, [
			[0, 3],
			[1, 3],
			[2, 3],
		]);
		assert.equal((await whole.result).content[0].text, 'done');

		const given = tool(fake, 'late', { onprogress: () => told.push('late') });
		setImmediate(() => given.cancel());
		for await (const _ of given.progress) assert.fail('there was none');
		assert.equal(given.state, 'cancelled');
		await fake.well();
		assert.deepEqual(told, [0, 1, 2]);
		// An end that came before the loop ends it too.
		for await (const _ of tool(fake, 'never', { signal: AbortSignal.abort() }).progress) assert.fail();
		const quiet = tool(fake, 'progress', { progress: false });
		await quiet.result;
		const { params } = fake.heard.findLast(({ id }) => id === quiet.id);
		assert.equal(params._meta, undefined);
		await fake.close();
	});

	test('k21_progress_puts_off_the_idle_timeout_and_nothing_the_total_one', async () => {
		const fake = await Fake.open('v1');
		const began = performance.now();
		const lively = tool(fake, 'lively', { idleMs: 400, totalMs: 700 });
		await assert.rejects(tool(fake, 'never', { idleMs: 30, totalMs: 60_000 }).result, TimeoutError);
		assert.ok(performance.now() - began < 400);
		await assert.rejects(lively.result, TimeoutError);
		const took = performance.now() - began;
		assert.ok(took >= 699 && took < 2000, `${took} ms`);
		await fake.close();
	});

	test('i5_prompt_settle_toward_a_peer_that_reads_nothing', async () => {
		const transport = new StdioClientTransport({
			command: 'sleep',
			args: ['1000'],
			closeWaitMs: 0,
			graceMs: 100,
		});
		await transport.start();
		const big = { text: 'x'.repeat(50_000) };
		const many = Array.from({ length: 20 }, () => call(transport, 'tools/call', big, { totalMs: 50 }));
		const waiting = many.at(-1);
		assert.deepEqual([waiting.state, waiting.outcome], ['queued', 'not_sent']);
		const began = performance.now();
		assert.equal(waiting.cancel(), true);
		assert.deepEqual([waiting.state, waiting.outcome], ['cancelled', 'not_sent']);
		const ends = await Promise.all(many.map(({ result }) => result.catch(({ name }) => name)));
		assert.ok(performance.now() - began < 1000);
		assert.deepEqual(new Set(ends), new Set(['TimeoutError', 'AbortError']));
		assert.ok(many.filter(({ outcome }) => outcome === 'not_sent').length >= 15);
		assert.equal(stats(transport).outbound, 0);
		await transport.close();
	});

	test('k14_a_thousand_calls_on_one_signal_have_one_listener', async () => {
		const fake = await Fake.open('v1');
		const controller = new AbortController();
		const { signal } = controller;
		const listeners = () => getEventListeners(signal, 'abort').length;
		const done = Array.from({ length: 1000 }, () => tool(fake, 'echo', { signal }));
		assert.equal(listeners(), 1);
		await Promise.all(done.map(({ result }) => result));
		assert.equal(listeners(), 0);
		const given = Array.from({ length: 1000 }, () => tool(fake, 'never', { signal, reason: 'all of them' }));
		await until(() => given.every(({ state }) => state === 'running'), 'all are written');
		controller.abort(new Error('internal words'));
		assert.ok(given.every(({ state }) => state === 'cancelled'));
		assert.equal(listeners(), 0);
		const error = await given[0].result.catch((error) => error);
		assert.equal(error.abortReason.message, 'internal words');
		await fake.well();
		assert.deepEqual(new Set(fake.cancels), new Set(given.map(({ id }) => id)));
		assert.equal(fake.cancels.length, 1000, 'one each, and none for what had ended');
		assert.ok(fake.heard.every((message) => !JSON.stringify(message).includes('internal')));
		const never = tool(fake, 'echo', { signal });
		assert.deepEqual([never.id, never.state, never.outcome], [undefined, 'cancelled', 'not_sent']);
		await assert.rejects(never.result, { name: 'AbortError' });
		await fake.close();
	});

	test('k01_disposing_cancels_and_a_handle_is_no_promise', async () => {
		const fake = await Fake.open('v1');
		const handle = tool(fake, 'never', { reason: 'out of scope' });
		assert.equal(await (async () => handle)(), handle);
		await handle[Symbol.asyncDispose]();
		assert.equal(handle.state, 'cancelled');
		const second = tool(fake, 'never');
		await until(() => second.state === 'running', 'it is written');
		second[Symbol.dispose]();
		await fake.well();
		assert.deepEqual(fake.cancels, [handle.id, second.id]);
		// Nobody awaits their results: that is no unhandled rejection.
		await sleep(5);
		await fake.close();
	});

	test('k01_and_k14_what_is_wrong_from_the_start_is_not_sent', async () => {
		const fake = await Fake.open('v1', { connection: { limits: { maxOutbound: 2 } } });
		assert.throws(() => call({}, 'ping'), TypeError);
		assert.throws(() => call(fake.client, 'ping', [1]), TypeError);
		const two = [tool(fake, 'never'), tool(fake, 'never')];
		const third = tool(fake, 'never');
		assert.deepEqual([third.state, third.outcome, third.id], ['failed', 'not_sent', undefined]);
		await assert.rejects(third.result, { code: 'too_many' });
		for (const handle of two) handle.cancel();
		await fake.well();
		await fake.close();
	});

	test('i5_a_listener_that_throws_hurts_nobody', async () => {
		const fake = await Fake.open('v1');
		const handle = tool(fake, 'progress', {
			onprogress: () => {
				throw new Error('my own mistake');
			},
		});
		assert.equal((await handle.result).content[0].text, 'done');
		await until(() => warnings.length === 3, 'a warning each');
		warnings.length = 0;
		await fake.well();
		await fake.close();
	});

	test('k14_10_000_calls_given_up_at_random_moments_leave_nothing', async () => {
		const fake = await Fake.open('v2');
		const { before, after, ends } = await leavesNothingOfCalls(fake, 10_000);
		assert.ok(
			Object.values(ends).every((count) => count > 100),
			JSON.stringify(ends),
		);
		assert.ok(after < before * 1.1, `${after} bytes, ${before} before`);
		await fake.close();
	});
});
