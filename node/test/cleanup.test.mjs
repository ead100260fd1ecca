// Cleanup after a cancel: it may await for its budget and not longer, and nothing that a handler does there
// reaches the wire or holds up the next call.

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { call, cancel, Peer, WAYS } from './harness/peer.mjs';

after(() => Peer.end());

for (const way of WAYS) {
	describe(way, () => {
		let peer;
		before(async () => {
			peer = await Peer.open(way);
		});
		after(async () => {
			peer.process.stdin.end();
			await peer.exited;
		});
		async function cancelled(args) {
			const id = Peer.id();
			const tag = `${args.how} ${id}`;
			peer.write(call(id, 'cleanup', { tag, ...args }));
			await peer.event('start', tag);
			peer.write(cancel(id));
			const cleaning = await peer.event('cleaning', tag);
			return { id, tag, cleaning };
		}

		test('k28_cleanup_in_a_shield_may_await_after_the_trip', async () => {
			const { id, tag, cleaning } = await cancelled({ how: 'prompt', ms: 10_000 });
			assert.deepEqual(
				[cleaning.own, cleaning.cancelled, cleaning.aborted, cleaning.id],
				[true, false, false, id],
			);
			const { ended, own } = await peer.event('cleaned', tag);
			assert.equal(ended, 'clean');
			assert.equal(own, true, 'the request has its own token again');
			await peer.event('exit', tag);
			assert.equal(peer.saw('late', tag), false);
			await peer.silent(id);
		});

		test('k28_cleanup_in_a_shield_may_fail', async () => {
			const { id, tag } = await cancelled({ how: 'throw', ms: 10_000 });
			assert.equal((await peer.event('cleaned', tag)).ended, 'Error cleanup failed');
			await peer.event('exit', tag);
			await peer.silent(id);
		});

		test('k28_cleanup_that_hangs_is_left_when_its_budget_is_over', async () => {
			const { id, tag } = await cancelled({ how: 'hang', ms: 50 });
			assert.deepEqual(await peer.event('late', tag).then(({ cause, child }) => [cause, child]), [
				'timeout',
				true,
			]);
			const { ended, took } = await peer.event('cleaned', tag);
			assert.equal(ended, 'AbortError The request was cancelled (timeout)');
			assert.ok(took >= 49 && took < 1000, `after ${took} ms`);
			await peer.event('exit', tag);
			await peer.silent(id);
		});

		test('i11_nothing_left_of_shields', async () => {
			assert.equal((await peer.stats()).tokens, 1);
		});

		test('i2_silence_a_handler_that_never_comes_back_from_its_cleanup', async () => {
			const id = Peer.id();
			const tag = `hangs ${id}`;
			peer.write(call(id, 'hangs', { tag }));
			await peer.event('start', tag);
			peer.write(cancel(id));
			await peer.event('abort', tag);
			await peer.silent(id);
			// Its id may be used again, and is answered once.
			peer.write(call(id, 'echo', { text: 'again' }));
			assert.equal((await peer.answer(id)).result.content[0].text, 'again');
			await peer.settled();
			assert.equal(peer.answers(id).length, 1);
			assert.equal(peer.saw('exit', tag), false);
		});
	});
}
