// Ends requests and servers while a tree runs, and waits until nothing of it is left.

import assert from 'node:assert/strict';
import { call, cancel, Peer } from './peer.mjs';
import { gone, ready, withFolder } from './processes.mjs';

export const ENDS = ['trip', 'eof', 'sigterm', 'sigkill'];
const SIGNALS = { sigterm: 'SIGTERM', sigkill: 'SIGKILL' };

/** Has a tool start its tree, ends the request or the server, and waits until the tree is gone. */
export async function oneEnd(peer, how, tool = 'tree') {
	await withFolder(async (folder) => {
		const id = Peer.id();
		peer.write(call(id, tool, { folder }));
		const pids = await ready(folder, how !== 'answer');
		const at = performance.now();
		if (how === 'trip') peer.write(cancel(id));
		else if (how === 'eof') peer.process.stdin.end();
		else if (how !== 'answer') peer.process.kill(SIGNALS[how]);
		await gone(pids);
		// The promise is two seconds.
		if (how === 'sigkill') assert.ok(performance.now() - at < 2000);
		if (how === 'trip') return peer.silent(id);
		if (how === 'answer') return peer.answer(id);
		await peer.exited;
		assert.deepEqual(peer.answers(id), []);
	});
}

export async function rounds(way, how, count) {
	let peer;
	for (let done = 0; done < count; done++) {
		if (how !== 'trip' || peer === undefined) peer = await Peer.open(way);
		await oneEnd(peer, how);
	}
	if (how !== 'trip') return;
	peer.process.stdin.end();
	assert.deepEqual(await peer.exited, { code: 0, signal: null });
}

export async function leavesNothingOfSpawns(way, count) {
	const peer = await Peer.open(way, { node: ['--expose-gc'] });
	peer.write(call('spawns', 'spawns', { ms: count }));
	const { result } = await peer.messages.find(({ id }) => id === 'spawns', `${count} spawns`, 30 * 60_000);
	const { before, after } = JSON.parse(result.content[0].text);
	assert.deepEqual(after, before);
	const stats = await peer.stats();
	assert.equal(stats.tokens, 1);
	assert.equal(stats.watches, 0);
	peer.process.stdin.end();
	assert.deepEqual(await peer.exited, { code: 0, signal: null });
}
