// Which request a cancel means: ids of every kind, used again, used twice, and cancels that mean nothing.
// One server for each way in.

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { call, cancel, Peer, WAYS } from './harness/peer.mjs';

after(() => Peer.end());

for (const way of WAYS) {
	describe(way, () => {
		let peer;
		let tags = 0;
		before(async () => {
			peer = await Peer.open(way);
		});
		/** Starts a tool that listens to its signal, and returns its tag once it runs. */
		async function listening(id) {
			const tag = `${++tags}`;
			peer.write(call(id, 'listen', { tag }));
			await peer.event('start', tag);
			return tag;
		}

		test('i9_handshake_initialize_and_its_cancel_in_one_write_is_answered', async () => {
			const fresh = new Peer(way);
			fresh.write(Peer.initialize, cancel('init'));
			assert.ok((await fresh.answer('init')).result.serverInfo);
			await fresh.settled();
			fresh.process.stdin.end();
			await fresh.exited;
		});

		for (const id of [0, '', -1, 2 ** 53 - 1, 'täg\u2028"\\', '0']) {
			test(`k12_id_${JSON.stringify(id)}_can_be_cancelled_and_answered`, async () => {
				const tag = await listening(id);
				peer.write(cancel(id));
				await peer.event('abort', tag);
				await peer.event('exit', tag);
				await peer.silent(id);
				peer.write(call(id, 'echo', { text: 'again' }));
				assert.equal((await peer.answer(id)).result.content[0].text, 'again');
			});
		}

		test('k12_an_id_beyond_2_to_the_53_is_itself', async () => {
			const raw = (id, tool, tag) => JSON.stringify(call(0, tool, { tag })).replace('"id":0', `"id":${id}`);
			peer.write(raw('9007199254740993', 'listen', 'big'), raw('9007199254740992', 'listen', 'other'));
			await peer.event('start', 'other');
			peer.write(
				'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":9007199254740993}}',
			);
			await peer.event('abort', 'big');
			await peer.settled();
			assert.equal(peer.saw('abort', 'other'), false);
			peer.write(
				'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":9007199254740992}}',
			);
			await peer.event('abort', 'other');
		});

		test('i7_right_target_7_and_the_string_7_are_two', async () => {
			const [number, string] = [await listening(7), await listening('7')];
			peer.write(cancel('7'));
			await peer.event('abort', string);
			await peer.settled();
			assert.equal(peer.saw('abort', number), false);
			peer.write(cancel(7));
			await peer.event('abort', number);
			await peer.silent(7, '7');
		});

		test('k24_a_reason_of_the_wrong_type_does_not_void_a_cancel', async () => {
			for (const reason of [7, null, { a: 1 }, ['x']]) {
				const id = Peer.id();
				const tag = await listening(id);
				peer.write(cancel(id, reason));
				await peer.event('abort', tag);
				await peer.silent(id);
			}
		});

		test('i15_session_lives_malformed_cancels_disturb_nothing', async () => {
			const id = Peer.id();
			const tag = await listening(id);
			const cancelled = (params) => ({ jsonrpc: '2.0', method: 'notifications/cancelled', params });
			peer.write(
				{ jsonrpc: '2.0', method: 'notifications/cancelled' },
				...[{}, [], { requestId: null }, { requestId: true }, { requestId: 1.5 }, { requestId: { id } }].map(
					cancelled,
				),
				cancel(`${id}`),
				cancel(id + 1_000_000),
				cancel('init'),
			);
			await peer.settled();
			assert.equal(peer.saw('abort', tag), false);
			peer.write(cancel(id), cancel(id), cancel(id));
			await peer.event('abort', tag);
			await peer.silent(id);
		});

		test('i7_right_target_a_late_cancel_spares_the_request_read_after_it', async () => {
			const id = Peer.id();
			peer.write(call(id, 'echo', { text: 'first' }));
			await peer.answer(id);
			peer.write(cancel(id), call(id, 'sleep', { ms: 20 }));
			await peer.messages.find(
				(message) => message.result?.content?.[0].text === 'slept' && message.id === id,
			);
			assert.equal(peer.answers(id).length, 2);
		});

		test('i2_silence_a_request_and_its_cancel_in_one_chunk_start_no_handler', async () => {
			const ids = Array.from({ length: 20 }, () => Peer.id());
			peer.write(...ids.flatMap((id) => [call(id, 'listen', { tag: `chunk ${id}` }), cancel(id)]));
			await peer.silent(...ids);
			for (const id of ids) assert.equal(peer.saw('start', `chunk ${id}`), false);
		});

		test('k13_request_cancel_request_with_one_id_in_one_write', async () => {
			const id = Peer.id();
			peer.write(
				call(id, 'sleep', { tag: `first ${id}`, ms: 10 }),
				cancel(id),
				call(id, 'sleep', { tag: `second ${id}`, ms: 10 }),
			);
			assert.equal((await peer.answer(id)).result.content[0].text, 'slept');
			await peer.settled();
			assert.equal(peer.answers(id).length, 1);
			assert.equal(peer.saw('start', `first ${id}`), false);
			assert.equal(peer.saw('exit', `second ${id}`), true);
		});

		test('k13_duplicate_id_is_rejected_and_the_first_goes_on', async () => {
			const id = Peer.id();
			const tag = await listening(id);
			peer.write(call(id, 'echo', { tag: `twin ${id}`, text: 'twin' }));
			assert.equal((await peer.answer(id)).error.code, -32600);
			assert.equal(peer.saw('start', `twin ${id}`), false);
			assert.equal(peer.saw('abort', tag), false);
			peer.write(cancel(id));
			await peer.event('abort', tag);
			await peer.settled();
			assert.equal(peer.answers(id).length, 1);
		});

		test('k13_an_id_used_again_while_the_old_handler_runs', async () => {
			const id = Peer.id();
			const old = `old ${id}`;
			peer.write(call(id, 'stubborn', { tag: old, how: 'return', ms: 200 }));
			await peer.event('start', old);
			peer.write(cancel(id));
			await peer.event('abort', old);
			peer.write(call(id, 'listen', { tag: `new ${id}` }));
			await peer.event('start', `new ${id}`);
			await peer.event('exit', old);
			await peer.silent(id);
			assert.equal(peer.saw('abort', `new ${id}`), false, 'the old cancel is not for the new request');
			peer.write(cancel(id));
			await peer.event('abort', `new ${id}`);
			peer.write(call(id, 'whoami', { at: 'timer' }));
			assert.equal((await peer.answer(id)).result.content[0].text, `${id}`, 'the peer’s own id');
			assert.equal(peer.answers(id).length, 1);
		});

		test('i11_nothing_left_when_all_is_answered_or_cancelled', async () => {
			const stats = await peer.stats();
			// The request that asks.
			assert.equal(stats.inFlight, 1);
			assert.equal(stats.open, 1);
			assert.equal(stats.tokens, 1);
			assert.equal(stats.watches, 0);
			assert.equal(stats.held, 0);
		});
	});
}

for (const way of ['v1', 'v2', 'serve', 'drop2']) {
	test(`k14_limits_are_settings_${way}`, async () => {
		const peer = await Peer.open(way, {
			options: {
				graceMs: 50,
				maxFrame: 10_000,
				connection: { limits: { maxInFlight: 2, maxReasonBytes: 4 } },
			},
		});
		peer.write(call(1, 'token', { tag: '1' }), call(2, 'block', { tag: '2', ms: 60_000 }), call(3, 'echo'));
		assert.equal((await peer.answer(3)).error.code, -32000);
		peer.write(call(4, 'echo', { text: 'x'.repeat(20_000) }));
		assert.equal((await peer.answer(null)).error.code, -32600);
		peer.process.stdin.end();
		assert.deepEqual(await peer.exited, { code: 0, signal: null });
	});
}
