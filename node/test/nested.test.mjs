// What a server asks its client while a tool runs (elicitation, sampling) ends with the tool's request.

import assert from 'node:assert/strict';
import path from 'node:path';
import { after, describe, test } from 'node:test';
import { call, cancel, Peer } from './harness/peer.mjs';
import { withFolder } from './harness/processes.mjs';

const WAYS = ['v1', 'v2', 'serve', 'drop1', 'drop2'];
const METHODS = {
	elicit: 'elicitation/create',
	sample: 'sampling/createMessage',
	related: 'elicitation/create',
	both: 'elicitation/create',
	handle: 'elicitation/create',
};

after(() => Peer.end());

describe('nested requests', { concurrency: 2 }, () => {
	for (const way of WAYS) {
		for (const [how, method] of Object.entries(METHODS)) {
			// Streams that stand in for stdio have no transport to call over.
			if (how === 'handle' && way === 'serve') continue;
			test(`k18_a_cancelled_tool_cancels_what_it_asks_${how}_${way}`, async () => {
				const peer = await Peer.open(way);
				for (const at of ['once', 'later']) {
					const id = Peer.id();
					const tag = `${how} ${at}`;
					peer.write(call(id, 'ask', { tag, how, at }));
					const asked = await peer.asked(method);
					peer.write(cancel(id));
					// The peer is told, and whoever asked hears at once: nobody has answered.
					await peer.messages.find((message) => message.params?.requestId === asked.id, 'its cancel');
					await peer.event('refused', tag);
					await peer.event('exit', tag);
					peer.write({ jsonrpc: '2.0', id: asked.id, result: { action: 'accept' } });
					await peer.silent(id);
					assert.equal(peer.cancels(asked.id).length, 1, 'one cancel');
					assert.equal(peer.saw('told', tag), false);
				}
				const { outbound, lateResponses } = await peer.stats();
				assert.deepEqual([outbound, lateResponses], [0, 2]);
				peer.process.stdin.end();
				assert.deepEqual(await peer.exited, { code: 0, signal: null });
				assert.equal(peer.stderr, '');
			});
		}

		for (const how of ['waiting', 'blocked']) {
			test(`k18_a_call_to_another_server_is_cancelled_with_its_request_${how}_${way}`, async () => {
				await withFolder(async (folder) => {
					const peer = await Peer.open(way);
					const id = Peer.id();
					peer.write(call(id, 'relay', { tag: 'a', how, ms: 20_000, folder: path.join(folder, 'log') }));
					await peer.event('relayed', 'a');
					peer.write(cancel(id, 'stop it'));
					const { name, cause, reason, state, apart } = await peer.event('relay over', 'a');
					assert.equal(apart, 'running');
					assert.deepEqual([name, cause, reason, state], ['AbortError', 'peer', 'stop it', 'cancelled']);
					const { outbound, watches } = await peer.event('relay left', 'a');
					assert.deepEqual([outbound, watches], [0, 0]);
					await peer.event('exit', 'a');
					await peer.silent(id);
					assert.equal((await peer.stats()).watches, 0);
				});
			});
		}

		test(`k18_what_is_asked_is_answered_when_nobody_cancels_${way}`, async () => {
			const peer = await Peer.open(way);
			const id = Peer.id();
			peer.write(call(id, 'ask', { tag: 'a', how: 'elicit' }));
			const asked = await peer.asked('elicitation/create');
			// A cancel of the other direction's request with the same id: it means another request.
			peer.write(cancel(asked.id));
			const content = { sure: true };
			peer.write({ jsonrpc: '2.0', id: asked.id, result: { action: 'accept', content } });
			assert.deepEqual((await peer.event('told', 'a')).content, content);
			assert.equal((await peer.answer(id)).result.content[0].text, 'asked');
			assert.equal(peer.cancels(asked.id).length, 0);
		});

		test(`k18_nothing_is_asked_for_a_cancelled_request_${way}`, async () => {
			const peer = await Peer.open(way);
			const id = Peer.id();
			peer.write(call(id, 'ask', { tag: 'a', how: 'elicit', at: 'after the cancel' }));
			await peer.event('start', 'a');
			peer.write(cancel(id));
			await peer.event('refused', 'a');
			await peer.silent(id);
			assert.ok(!peer.messages.all.some(({ method }) => method === 'elicitation/create'));
		});
	}
});
