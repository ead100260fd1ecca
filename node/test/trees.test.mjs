// Process trees of a real server: what `run` and `spawn` say, and that nothing is left of a tree after a trip, the
// end of stdin, SIGTERM and SIGKILL. `long.mjs` does the same at length.

import assert from 'node:assert/strict';
import { after, describe, test } from 'node:test';
import { Peer } from './harness/peer.mjs';
import { ENDS, leavesNothingOfSpawns, oneEnd, rounds } from './harness/trees.mjs';

/** One of each generation of the SDK, and each in which a handler's exit is told in its own way. */
const WAYS = ['v1', 'v2', 'drop2'];

after(() => Peer.end());

describe('process trees', { concurrency: 2 }, () => {
	for (const way of WAYS) {
		test(`what_run_and_spawn_say_${way}`, async () => {
			const peer = await Peer.open(way);
			const said = JSON.parse(await peer.text('processes'));
			assert.deepEqual(said, {
				run: { code: 3, signal: null, stdout: 'hello', stderr: 'oops\n' },
				where: '/usr\nhere\n',
				killed: { code: null, signal: 'SIGKILL' },
				big: 5_000_000,
				missing: { code: 'ENOENT', errno: -2, path: 'no-such-program' },
				nowhere: { code: 'ENOENT', path: '/no/such/folder' },
				cat: { text: 'one two', code: 0, signal: null },
				stopped: { code: null, signal: 'SIGTERM' },
				none: [null, null, null],
				own: true,
				refused: { name: 'AbortError', reason: 'no more' },
				cancelled: { name: 'AbortError', reason: 'enough' },
			});
			peer.process.stdin.end();
			assert.deepEqual(await peer.exited, { code: 0, signal: null });
		});

		for (const how of ENDS) {
			test(`i11_nothing_left_of_a_tree_after_${how}_${way}`, () => rounds(way, how, 2));
		}

		for (const tool of ['deafTree', 'forgottenTree', 'blockedTree']) {
			for (const how of ['trip', 'eof']) {
				test(`i11_nothing_left_of_a_tree_whatever_its_handler_does_${tool}_${how}_${way}`, async () => {
					await oneEnd(await Peer.open(way), how, tool);
				});
			}
		}

		test(`k04_a_tree_that_a_handler_forgets_ends_with_its_request_${way}`, async () => {
			await oneEnd(await Peer.open(way), 'answer', 'returnsFromTree');
		});

		test(`i11_nothing_left_of_300_spawns_and_trips_${way}`, () => leavesNothingOfSpawns(way, 300));
	}
});
