// Many calls, given up at random moments in every way: what is left. Short in the tests, long in `npm run test:long`.

import assert from 'node:assert/strict';
import { getEventListeners } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { call } from 'countermand';

/** How many tasks make calls. */
const LANES = 64;
const TOOLS = ['echo', 'never', 'late', 'progress', 'odd'];
/** What a call that was given up may end with. */
const ENDS = ['done', 'cancelled', 'timed_out'];

const random = (below) => Math.floor(Math.random() * below);
/** From now to some milliseconds. */
const moment = () =>
	[() => {}, () => Promise.resolve(), () => new Promise(setImmediate), () => sleep(random(3))][random(4)]();

/** Makes calls from many tasks; returns how they ended. Throws for one that settles twice, or hears more after its end. */
async function abandonMany(fake, calls, signal) {
	const ends = { done: 0, cancelled: 0, timed_out: 0 };
	let made = 0;
	async function one() {
		const how = random(5);
		const own = how === 2 ? new AbortController() : undefined;
		const name = TOOLS[random(TOOLS.length)];
		let over = false;
		const handle = call(
			fake.transport,
			'tools/call',
			{ name },
			{
				signal: own?.signal ?? signal,
				// Nothing waits for ever for what nobody gives up.
				totalMs: how === 3 ? 1 + random(4) : 200,
				onprogress: () => assert.equal(over, false, 'progress after the end'),
			},
		);
		const settled = handle.result.then(
			() => handle.state,
			() => handle.state,
		);
		if (how !== 4) await moment();
		if (how === 0) handle.cancel();
		if (how === 1) handle[Symbol.dispose]();
		own?.abort();
		const state = await settled;
		over = true;
		assert.ok(ENDS.includes(state), state);
		assert.equal(handle.cancel(), false, 'it has ended');
		ends[state]++;
	}
	async function lane() {
		while (made++ < calls) await one();
	}
	await Promise.all(Array.from({ length: LANES }, lane));
	return ends;
}

async function memory() {
	for (let i = 0; i < 4; i++) {
		globalThis.gc();
		await sleep(5);
	}
	return process.memoryUsage().heapUsed;
}

/** As above, and looks at the tables, the listeners and the memory. */
export async function leavesNothingOfCalls(fake, calls) {
	const { signal } = new AbortController();
	await abandonMany(fake, Math.max(2000, calls / 10), signal);
	const before = await memory();
	const ends = await abandonMany(fake, calls, signal);
	await fake.well();
	const after = await memory();
	const { outbound, tokens, watches, tombstones } = fake.stats;
	assert.deepEqual({ outbound, tokens, watches }, { outbound: 0, tokens: 0, watches: 0 });
	assert.ok(tombstones <= 1024);
	assert.equal(getEventListeners(signal, 'abort').length, 0);
	return { before, after, ends };
}
