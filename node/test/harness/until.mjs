// What no event tells is looked for, until it is there.

import { setTimeout as sleep } from 'node:timers/promises';

/** Nothing takes this long: what does is a failure. */
const LIMIT = 20_000;

export async function until(there, what) {
	const end = performance.now() + LIMIT;
	while (!there()) {
		if (performance.now() > end) throw new Error(`${what} never came`);
		await sleep(1);
	}
}
