// How a connection ends: by either side, whatever the tools do; and what never reaches the wire.

import assert from 'node:assert/strict';
import { after, describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { call, cancel, Peer, WAYS } from './harness/peer.mjs';

after(() => Peer.end());

describe('the end', { concurrency: 4 }, () => {
	for (const way of WAYS) {
		test(`k03_eof_while_idle_ends_the_process_${way}`, async () => {
			const peer = await Peer.open(way);
			await peer.settled();
			peer.process.stdin.end();
			assert.deepEqual(await peer.exited, { code: 0, signal: null });
		});

		test(`k03_eof_cancels_everything_and_ends_the_process_${way}`, async () => {
			const peer = await Peer.open(way);
			const ids = Array.from({ length: 3 }, () => Peer.id());
			peer.write(...ids.map((id) => call(id, 'listen', { tag: `${id}` })));
			const token = Peer.id();
			peer.write(call(token, 'token', { tag: 'token' }));
			await peer.event('start', 'token');
			peer.process.stdin.end();
			for (const id of ids) await peer.event('abort', `${id}`);
			assert.equal((await peer.event('token', 'token')).cause, 'disconnect');
			assert.deepEqual(await peer.exited, { code: 0, signal: null });
			for (const id of [...ids, token]) assert.deepEqual(peer.answers(id), []);
		});

		test(`k16_eof_ends_the_process_though_a_subprocess_runs_${way}`, async () => {
			const peer = await Peer.open(way);
			peer.write(call(1, 'subprocess', { tag: 'sub' }));
			const { pid } = await peer.event('child', 'sub');
			try {
				peer.process.stdin.end();
				assert.deepEqual(await peer.exited, { code: 0, signal: null });
			} finally {
				process.kill(pid, 'SIGKILL');
			}
		});

		test(`k16_eof_ends_the_process_though_a_handler_is_stuck_${way}`, async () => {
			const peer = await Peer.open(way);
			peer.write(call(1, 'block', { tag: 'block', ms: 60_000 }));
			await peer.event('start', 'block');
			peer.process.stdin.end();
			assert.deepEqual(await peer.exited, { code: 0, signal: null });
		});

		test(`k16_sigterm_cancels_everything_and_ends_the_process_${way}`, async () => {
			const peer = await Peer.open(way);
			peer.write(call(1, 'token', { tag: 'token' }));
			await peer.event('start', 'token');
			peer.process.kill('SIGTERM');
			assert.equal((await peer.event('token', 'token')).cause, 'shutdown');
			assert.deepEqual(await peer.exited, { code: 143, signal: null });
			assert.deepEqual(peer.answers(1), []);
		});

		test(`i15_a_peer_that_closes_our_stdout_crashes_nothing_${way}`, async () => {
			const peer = await Peer.open(way);
			peer.process.stdout.destroy();
			// Written until the server has met the broken pipe.
			const busy = (async () => {
				while (peer.process.exitCode === null && peer.process.signalCode === null) {
					peer.write(call(Peer.id(), 'echo', { text: 'x'.repeat(1000) }));
					await sleep(5);
				}
			})();
			assert.deepEqual(await peer.exited, { code: 0, signal: null });
			await busy;
			assert.doesNotMatch(peer.stderr, /EPIPE|Uncaught|at .*:\d+:\d+/);
		});

		test(`i4_whole_frames_stray_output_does_not_reach_the_wire_${way}`, async () => {
			const peer = await Peer.open(way);
			assert.equal(await peer.text('stray'), 'strayed');
			await peer.settled();
			assert.equal(
				peer.messages.all.some((message) => message.stray !== undefined),
				false,
			);
			for (const what of ['console.log', 'process.stdout.write', 'fd 1', 'child']) {
				assert.ok(peer.stderr.includes(`{"stray":"${what}"}`), `${what} went to stderr`);
			}
			peer.process.stdin.end();
			await peer.exited;
		});

		test(`i15_session_lives_a_tool_that_reads_stdin_finds_it_empty_${way}`, async () => {
			const peer = await Peer.open(way);
			assert.equal(await peer.text('stdin'), 'read 0');
			await peer.settled();
			peer.process.stdin.end();
			assert.deepEqual(await peer.exited, { code: 0, signal: null });
		});

		test(`i3_no_loss_and_i4_whole_frames_of_5_mb_to_a_slow_reader_amid_cancels_${way}`, async () => {
			const peer = await Peer.open(way);
			peer.process.stdout.pause();
			const text = `${'ü"\\\u0001'.repeat(500_000)}`;
			const ids = Array.from({ length: 4 }, () => Peer.id());
			peer.write(...ids.map((id) => call(id, 'echo', { text })));
			const cancelled = Array.from({ length: 50 }, () => Peer.id());
			for (const id of cancelled) peer.write(call(id, 'listen', { tag: `${id}` }), cancel(id));
			await sleep(300);
			peer.process.stdout.resume();
			for (const id of ids) assert.equal((await peer.answer(id)).result.content[0].text === text, true);
			await peer.silent(...cancelled);
			peer.process.stdin.end();
			await peer.exited;
		});
	}
});
