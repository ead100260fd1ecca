// Many requests, many cancels: what is left, and who wins. `long.mjs` is the same at full length.

import assert from 'node:assert/strict';
import { after, describe, test } from 'node:test';
import { leavesNothing, race } from './harness/load.mjs';
import { Peer, WAYS } from './harness/peer.mjs';

after(() => Peer.end());

describe('load', { concurrency: 2 }, () => {
	for (const way of WAYS) {
		test(`i1_one_answer_each_and_i11_nothing_left_of_1000_requests_${way}`, async () => {
			await leavesNothing(way, 1000);
		});

		test(`k05_200_cancels_around_completion_${way}`, async () => {
			const peer = await Peer.open(way);
			const answered = await race(peer, 200);
			assert.ok(answered < 200, 'some cancels were in time');
			peer.process.stdin.end();
			assert.deepEqual(await peer.exited, { code: 0, signal: null });
		});
	}
});
