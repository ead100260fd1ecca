// Work in a thread: a trip ends it whatever it does, its caller hears of it at once, and nothing is left.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { getEventListeners } from 'node:events';
import { existsSync, readdirSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { after, before, describe, test } from 'node:test';
import { runInWorker } from 'countermand';
import { call, cancel, Peer, WAYS } from './harness/peer.mjs';
import { until } from './harness/until.mjs';

const THREADS = Math.max(2, availableParallelism());
const JOBS = new URL('./harness/jobs.mjs', import.meta.url);

after(() => Peer.end());

/** Waits until the system has no such thread any more. */
async function gone(thread) {
	await until(() => !existsSync(`/proc/${thread}`), `the end of thread ${thread}`);
}

for (const way of WAYS) {
	describe(way, () => {
		let peer;
		before(async () => {
			peer = await Peer.open(way);
		});
		/** Starts a job, and returns its thread once it runs. */
		async function working(how, args = {}) {
			const id = Peer.id();
			const tag = `${how} ${id}`;
			peer.write(call(id, 'worker', { tag, how, ...args }));
			const { thread } = await peer.event('job', tag);
			return { id, tag, thread };
		}

		test('i3_no_loss_a_worker_that_nobody_cancels_returns_what_it_found', async () => {
			assert.equal(await peer.text('worker', { text: 'found' }), 'found');
		});

		for (const how of ['loop', 'wait', 'never', 'backtrack']) {
			test(`k08_a_worker_in_${how}_is_gone_within_200_ms`, async () => {
				const { id, tag, thread } = await working(how);
				assert.ok(existsSync(`/proc/${thread}`));
				const from = performance.now();
				peer.write(cancel(id));
				await gone(thread);
				const took = performance.now() - from;
				assert.ok(took < 200, `gone after ${took} ms`);
				const caught = await peer.event('caught', tag);
				assert.deepEqual([caught.name, caught.cause, caught.same], ['AbortError', 'peer', true]);
				assert.equal(await peer.text('worker', { text: 'next' }), 'next');
				await peer.silent(id);
			});
		}

		test('k08_a_worker_sees_its_cancel_while_the_main_thread_is_blocked', async () => {
			const { id, tag } = await working('looks');
			const blocking = `blocks ${id}`;
			peer.write(call(Peer.id(), 'block', { tag: blocking, ms: 1000 }));
			await peer.event('start', blocking);
			peer.write(cancel(id));
			const saw = await peer.event('saw', tag);
			assert.deepEqual([saw.name, saw.cause, saw.token], ['AbortError', 'peer', 'peer']);
			assert.equal(peer.saw('exit', blocking), false, 'the main thread is blocked');
			await peer.event('exit', tag);
			await peer.silent(id);
		});

		test('k15_a_worker_with_grace_unwinds_and_its_caller_does_not_wait', async () => {
			const { id, tag, thread } = await working('looks', { ms: 10_000 });
			peer.write(cancel(id));
			assert.equal((await peer.event('caught', tag)).same, true);
			assert.equal((await peer.event('saw', tag)).cause, 'peer');
			assert.equal(await peer.text('worker', { text: 'next' }), 'next');
			assert.ok(existsSync(`/proc/${thread}`), 'the thread lives on for the next job');
			const stubborn = await working('loop', { ms: 20 });
			peer.write(cancel(stubborn.id));
			await gone(stubborn.thread);
			await peer.silent(id, stubborn.id);
		});

		test('i7_right_target_a_token_of_ones_own_ends_the_worker_and_not_the_request', async () => {
			const text = await peer.text('workerOfChild', { tag: `${Peer.id()}` });
			assert.equal(text, 'AbortError local enough false');
		});

		test('k28_jobs_that_wait_for_a_thread_start_when_one_is_ended_or_never', async () => {
			const loops = [];
			for (let i = 0; i < THREADS; i++) loops.push(await working('loop'));
			const [never, waiting] = ['loop', 'loop'].map((how) => ({ id: Peer.id(), how }));
			for (const job of [never, waiting]) {
				job.tag = `waits ${job.id}`;
				peer.write(call(job.id, 'worker', job));
				await peer.event('start', job.tag);
			}
			peer.write(cancel(never.id));
			assert.equal((await peer.event('caught', never.tag)).same, true);
			assert.equal(peer.saw('job', waiting.tag), false);
			// Each of the others has a token, and its worker one; so has the request that asks.
			assert.equal((await peer.stats()).tokens, 2 * (loops.length + 1) + 1, 'nothing of it is kept');
			peer.write(cancel(loops[0].id));
			await peer.event('job', waiting.tag);
			peer.write(...loops.slice(1).map(({ id }) => cancel(id)), cancel(waiting.id));
			for (const { thread } of loops) await gone(thread);
			await gone((await peer.event('job', waiting.tag)).thread);
			assert.equal(peer.saw('job', never.tag), false);
			assert.equal(await peer.text('worker', { text: 'next' }), 'next');
			await peer.silent(never.id, waiting.id, ...loops.map(({ id }) => id));
		});

		test('i15_session_lives_whatever_becomes_of_a_worker', async () => {
			for (const [how, message] of [
				['fails', 'out of range'],
				['dies', 'nobody caught this'],
				['exits', 'worker exited with code: 3'],
				['absent', "exports no function 'absent'"],
			]) {
				const tag = `${how} ${Peer.id()}`;
				const id = Peer.id();
				peer.write(call(id, 'worker', { tag, how }));
				const { result, error } = await peer.answer(id);
				assert.ok(error !== undefined || result.isError, how);
				assert.ok((await peer.event('caught', tag)).message.includes(message), how);
				assert.equal(await peer.text('worker', { text: how }), how);
			}
		});

		test('i4_whole_frames_what_a_worker_prints_does_not_reach_the_wire', async () => {
			const text = '{"stray":"worker"}';
			assert.equal(await peer.text('worker', { how: 'prints', text }), text);
			await peer.settled();
			assert.equal(
				peer.messages.all.some(({ stray }) => stray !== undefined),
				false,
			);
		});

		test('k08_a_worker_that_cannot_be_ended_holds_up_nobody', async () => {
			const { id, tag, thread } = await working('native');
			await peer.event('asleep', tag);
			peer.write(cancel(id));
			assert.equal((await peer.event('caught', tag)).same, true);
			assert.equal(await peer.text('worker', { text: 'next' }), 'next');
			await peer.silent(id);
			assert.ok(existsSync(`/proc/${thread}`));
			assert.equal(peer.saw('slept', tag), false);
		});

		test('k16_eof_ends_the_process_though_workers_loop', async () => {
			await working('loop');
			const { tag } = await working('native');
			await peer.event('asleep', tag);
			peer.process.stdin.end();
			assert.deepEqual(await peer.exited, { code: 0, signal: null });
			assert.equal(peer.saw('slept', tag), false, 'nobody waits for it');
		});
	});
}

test('i11_nothing_left_of_1000_runs_and_trips_of_workers', async () => {
	const peer = await Peer.open('v2');
	const { pid } = peer.process;
	async function wave(size, trips) {
		await Promise.all(
			Array.from({ length: size }, async (_, i) => {
				if (i >= trips) return assert.equal(await peer.text('worker', { text: 'run' }), 'run');
				const id = Peer.id();
				const tag = `trip ${id}`;
				peer.write(call(id, 'worker', { tag, how: 'loop' }));
				// Some while they wait, some while they run.
				await peer.event(i % 2 === 0 ? 'start' : 'job', tag);
				peer.write(cancel(id));
				await peer.event('exit', tag);
			}),
		);
	}
	/** With each thread of the pool at work once. */
	async function counts() {
		const ids = Array.from({ length: THREADS }, () => Peer.id());
		peer.write(...ids.map((id) => call(id, 'worker', { tag: `at work ${id}`, how: 'loop' })));
		const threads = [];
		for (const id of ids) threads.push((await peer.event('job', `at work ${id}`)).thread);
		const found = {
			threads: readdirSync(`/proc/${pid}/task`).length,
			fds: readdirSync(`/proc/${pid}/fd`).length,
			handles: JSON.parse(await peer.text('handles')),
		};
		peer.write(...ids.map((id) => cancel(id)));
		for (const thread of threads) await gone(thread);
		return found;
	}
	await wave(50, 10);
	const before = await counts();
	for (let done = 0; done < 1000; done += 50) await wave(50, 10);
	assert.deepEqual(await counts(), before);
	const stats = await peer.stats();
	assert.equal(stats.tokens, 1);
	assert.equal(stats.open, 1);
	peer.process.stdin.end();
	assert.deepEqual(await peer.exited, { code: 0, signal: null });
});

test('i11_nothing_left_no_listener_on_a_signal_that_outlives_its_jobs', async () => {
	const controller = new AbortController();
	const { signal } = controller;
	for (let i = 0; i < 20; i++) assert.equal(await runInWorker(JOBS, { text: i }, { signal }), i);
	assert.equal(getEventListeners(signal, 'abort').length, 0);
	const reason = new Error('enough');
	const running = Array.from({ length: 2 * THREADS }, () => runInWorker(JOBS, {}, { name: 'never', signal }));
	controller.abort(reason);
	for (const { reason: error } of await Promise.allSettled(running)) assert.equal(error, reason);
	assert.equal(getEventListeners(signal, 'abort').length, 0);
	await assert.rejects(runInWorker(JOBS, {}, { signal }), reason);
	await assert.rejects(runInWorker('./jobs.mjs'), TypeError);
});

test('i11_nothing_left_the_pool_keeps_no_process_alive', () => {
	const script = `
		const { runInWorker } = require('countermand');
		runInWorker(process.argv[1], 'done', { name: 'echo' }).then(console.log);`;
	const job = new URL('./harness/job.cjs', import.meta.url).href;
	const options = { cwd: new URL('..', import.meta.url), encoding: 'utf8', timeout: 20_000 };
	assert.equal(execFileSync(process.execPath, ['-e', script, job], options), 'done\n');
});
