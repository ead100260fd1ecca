// Loads for the races and for what is left behind: short in the tests, long in `npm run test:long`.

import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';
import { call, cancel, Peer } from './peer.mjs';

/** How many requests are in flight. */
const WINDOW = 64;

/** Sends requests, half of which are cancelled at a random moment of their life. */
export async function cancelHalf(peer, requests) {
	let sent = 0;
	async function lane() {
		while (sent < requests) {
			const cancelled = sent++ % 2 === 1;
			const id = Peer.id();
			const request = call(id, 'sleep', { ms: Math.floor(Math.random() * 4) });
			if (!cancelled) {
				const answer = peer.messages.next((message) => message.id === id, `an answer to ${id}`);
				peer.write(request);
				await answer;
				continue;
			}
			peer.write(request);
			const wait = Math.floor(Math.random() * 6) - 1;
			if (wait >= 0) await sleep(wait);
			peer.write(cancel(id));
		}
	}
	await Promise.all(Array.from({ length: WINDOW }, lane));
}

/** As {@link cancelHalf}, and looks at every answer, at the tables and at the memory. */
export async function leavesNothing(way, requests) {
	const peer = await Peer.open(way, { node: ['--expose-gc'] });
	const warm = Math.max(2000, requests / 2);
	await cancelHalf(peer, warm);
	peer.forget();
	const before = JSON.parse(await peer.text('memory'));
	await cancelHalf(peer, requests);
	await peer.settled();
	const counts = new Map();
	for (const { id } of peer.messages.all) counts.set(id, (counts.get(id) ?? 0) + 1);
	for (const count of counts.values()) assert.equal(count, 1, 'one answer');
	// Every one that nobody cancelled was answered: each lane waited for it.
	assert.ok(counts.size >= requests / 2);
	const stats = await peer.stats();
	assert.equal(stats.inFlight, 1, 'the request that asks');
	assert.equal(stats.open, 1);
	assert.equal(stats.tokens, 1);
	assert.equal(stats.retired, 0);
	const after = JSON.parse(await peer.text('memory'));
	peer.process.stdin.end();
	assert.deepEqual(await peer.exited, { code: 0, signal: null });
	return { before, after, stats };
}

/**
 * Cancels in a window of 10 ms around the completion of a tool that takes 20 ms: never two answers, and
 * the session lives.
 */
export async function race(peer, cancels) {
	const ids = [];
	for (let done = 0; done < cancels; done += WINDOW) {
		const wave = Array.from({ length: Math.min(WINDOW, cancels - done) }, () => Peer.id());
		ids.push(...wave);
		peer.write(...wave.map((id) => call(id, 'sleep', { ms: 20 })));
		const start = performance.now();
		await Promise.all(
			wave.map(async (id) => {
				const due = 15 + Math.random() * 10;
				while (performance.now() - start < due) await sleep(1);
				peer.write(cancel(id));
			}),
		);
	}
	await sleep(50);
	await peer.settled();
	let answered = 0;
	for (const id of ids) {
		const answers = peer.answered(id);
		assert.ok(answers <= 1, `${answers} answers to ${id}`);
		answered += answers;
	}
	return answered;
}
