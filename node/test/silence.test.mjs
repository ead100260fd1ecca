// What follows a cancel: nothing, whatever the handler does. One server for each way in.

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { call, cancel, Peer, WAYS } from './harness/peer.mjs';

after(() => Peer.end());

for (const way of WAYS) {
	describe(way, () => {
		let peer;
		before(async () => {
			peer = await Peer.open(way);
		});
		/** Starts a tool, and returns its id and tag once it runs. */
		async function running(name, args = {}, meta) {
			const id = Peer.id();
			const tag = `${name} ${id}`;
			peer.write(call(id, name, { tag, ...args }, meta));
			await peer.event('start', tag);
			return { id, tag };
		}

		test('i2_silence_a_tool_that_honours_the_sdks_signal', async () => {
			const { id, tag } = await running('listen');
			peer.write(cancel(id, 'enough'));
			await peer.event('abort', tag);
			await peer.event('exit', tag);
			await peer.silent(id);
		});

		for (const how of ['return', 'throw']) {
			for (const ms of [0, 2000]) {
				test(`i2_silence_a_tool_that_${how}s_${ms}_ms_after_its_cancel`, async () => {
					const { id, tag } = await running('stubborn', { how, ms });
					peer.write(cancel(id));
					await peer.event('exit', tag);
					await peer.silent(id);
				});
			}
		}

		test('i2_silence_no_progress_follows_a_cancel', async () => {
			const token = `p${Peer.id()}`;
			const { id, tag } = await running('stubborn', { how: 'progress' }, { progressToken: token });
			const of = () => peer.messages.all.filter((message) => message.params?.progressToken === token).length;
			await peer.messages.find((message) => message.params?.progressToken === token, 'progress');
			peer.write(cancel(id));
			await peer.settled();
			// The cancel was read before that answer was sent.
			const before = of();
			await peer.event('exit', tag);
			await peer.silent(id);
			assert.equal(of(), before);
		});

		test('i1_one_answer_an_abort_that_nobody_asked_for_is_answered', async () => {
			const { id } = await running('selfish');
			const { result, error } = await peer.answer(id);
			assert.ok(error !== undefined || result.isError, 'with an error');
		});

		test('i3_no_loss_a_tool_that_cancels_its_own_token_is_answered', async () => {
			const { id, tag } = await running('resign');
			const seen = await peer.event('resigned', tag);
			assert.deepEqual([seen.cause, seen.reason, seen.aborted], ['local', 'enough', true]);
			await peer.answer(id);
			await peer.settled();
			assert.equal(peer.answers(id).length, 1);
		});

		test('i8_whole_subtree_the_token_tells_what_happened', async () => {
			const { id, tag } = await running('token');
			peer.write(cancel(id, 'enough'));
			const seen = await peer.event('token', tag);
			assert.equal(seen.cause, 'peer');
			assert.equal(seen.reason, 'enough');
			assert.equal(seen.id, String(id));
			assert.equal(seen.thrown, 'AbortError');
			assert.equal(seen.aborted, true);
			assert.deepEqual(seen.signal, { name: 'AbortError', reason: 'enough', cause: 'peer' });
			assert.equal(seen.child, true);
			assert.equal(seen.born, true);
			assert.equal((await peer.event('child', tag)).cause, 'peer');
			assert.equal(peer.saw('unregistered', tag), false);
			await peer.silent(id);
		});

		test('k08_a_loop_that_never_yields_stops_within_50_ms', async () => {
			const took = [];
			// The bound that is promised, which a busy machine may miss once, but not every time.
			while (took.length === 0 || (Math.min(...took) >= 50 && took.length < 5)) {
				const spinning = await running('spin');
				const queued = { id: Peer.id(), tag: `queued ${spinning.id}` };
				const spared = Peer.id();
				peer.write(
					call(queued.id, 'echo', { tag: queued.tag, text: '' }),
					call(spared, 'echo', { text: 'spared' }),
				);
				peer.write(cancel(queued.id));
				await sleep(100);
				const cancelled = performance.now();
				peer.write(cancel(spinning.id));
				await peer.event('exit', spinning.tag);
				took.push(performance.now() - cancelled);
				await peer.answer(spared);
				await peer.silent(spinning.id, queued.id);
				assert.equal(peer.saw('start', queued.tag), false, 'a request that waited behind it never starts');
			}
			assert.ok(Math.min(...took) < 50, `stopped after ${took} ms`);
		});

		test('i2_silence_a_request_that_came_with_the_looping_one_never_starts', async () => {
			// The tool is known to be brief by then, so that the engine is not asked before it starts.
			for (let i = 0; i < 20; i++) await peer.settled();
			const [spin, queued] = [Peer.id(), Peer.id()];
			peer.write(
				call(spin, 'spin', { tag: `s${spin}` }),
				call(queued, 'echo', { tag: `q${queued}`, text: '' }),
			);
			await peer.event('start', `s${spin}`);
			peer.write(cancel(queued), cancel(spin));
			await peer.event('exit', `s${spin}`);
			await peer.silent(spin, queued);
			assert.equal(peer.saw('start', `q${queued}`), false);
		});
	});
}
