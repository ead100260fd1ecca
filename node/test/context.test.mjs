// `current()` is the request's own token, for every one of many requests in flight, on each way in.

import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { call, Peer, WAYS } from './harness/peer.mjs';

after(() => Peer.end());

for (const way of WAYS) {
	test(`i7_right_target_current_in_50_pipelined_requests_${way}`, async () => {
		const peer = await Peer.open(way);
		async function all(wheres) {
			const calls = wheres.map((at) => call(Peer.id(), 'whoami', { at }));
			peer.write(...calls);
			for (const { id, params } of calls) {
				const { result } = await peer.answer(id);
				assert.equal(result.content[0].text, `${id}`, `at ${params.arguments.at}`);
			}
		}
		const mixed = Array.from({ length: 49 }, (_, i) => ['now', 'gate', 'timer', 'immediate'][i % 4]);
		await all([...mixed, 'opens']);
		// Again, when the engine knows requests that need no context.
		for (let i = 0; i < 5; i++) {
			const echoes = Array.from({ length: 50 }, () => call(Peer.id(), 'echo', { text: 'x' }));
			peer.write(...echoes);
			for (const { id } of echoes) await peer.answer(id);
		}
		await all([...mixed, 'opens']);
		peer.process.stdin.end();
		await peer.exited;
	});

	test(`i7_right_target_a_tool_that_was_brief_for_long_awaits_${way}`, async () => {
		const peer = await Peer.open(way);
		for (let i = 0; i < 40; i++) assert.equal(await peer.text('cached', { at: 'hit' }), 'hit');
		const calls = Array.from({ length: 5 }, () => call(Peer.id(), 'cached', { at: 'miss' }));
		peer.write(...calls);
		for (const { id } of calls) assert.equal((await peer.answer(id)).result.content[0].text, `${id}`);
		peer.process.stdin.end();
		await peer.exited;
	});
}
