// The long runs: 10,000 requests with half of them cancelled at random moments, and 2,000 cancels around
// completion, under each way in; then 10,000 spawns and trips, and 200 trees for each way to end them; then 100,000
// calls of a client that are given up at random moments.
// Prints a line each; `node test/long.mjs [way …]`.

import assert from 'node:assert/strict';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { leavesNothingOfCalls } from './harness/calls.mjs';
import { CLIENTS, Fake } from './harness/fakes.mjs';
import { leavesNothing, race } from './harness/load.mjs';
import { Peer, WAYS } from './harness/peer.mjs';
import { ENDS, leavesNothingOfSpawns, rounds } from './harness/trees.mjs';

setFlagsFromString('--expose-gc');
globalThis.gc ??= runInNewContext('gc');

const ways = process.argv.length > 2 ? process.argv.slice(2) : WAYS;
for (const way of ways) {
	const { before, after, stats } = await leavesNothing(way, 10_000);
	const heap = after.heapUsed / before.heapUsed;
	const rss = after.rss / before.rss;
	console.log(
		`${way}: 10,000 requests, ${stats.cancelled.peer} cancelled; memory ${heap.toFixed(3)} of its level after warm-up (resident ${rss.toFixed(3)})`,
	);
	assert.ok(heap < 1.1, 'memory is back');
	const peer = await Peer.open(way);
	const answered = await race(peer, 2000);
	console.log(`${way}: 2,000 cancels around completion, ${answered} requests were answered first`);
	peer.process.stdin.end();
	assert.deepEqual(await peer.exited, { code: 0, signal: null });
}
// The processes are the engine's: one way in stands for all, at length.
const way = ways.includes('v2') ? 'v2' : ways[0];
await leavesNothingOfSpawns(way, 10_000);
console.log(`${way}: 10,000 spawns and trips leave no process, descriptor or thread`);
for (const how of ENDS) {
	await rounds(way, how, 200);
	console.log(`${way}: 200 trees, ${how}: nothing left of any`);
}
Peer.end();
for (const sdk of Object.keys(CLIENTS)) {
	const fake = await Fake.open(sdk);
	const { before, after, ends } = await leavesNothingOfCalls(fake, 100_000);
	const heap = (after / before).toFixed(3);
	console.log(`${sdk}: 100,000 calls, ${JSON.stringify(ends)}; memory ${heap} of its level after warm-up`);
	assert.ok(after < before * 1.1, 'memory is back');
	await fake.close();
}
await Fake.end();
