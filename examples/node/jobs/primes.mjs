// What worker.mjs runs in a thread: the default export gets the data.

import { current } from 'countermand/worker';

export default function primes(below) {
	// The thread is ended in any case; who looks may clean up, if it is given a grace.
	const token = current();
	let count = 0;
	for (let n = 2; n < below; n++) {
		token?.checkpoint();
		let prime = true;
		for (let d = 2; prime && d * d <= n; d++) prime = n % d !== 0;
		if (prime) count++;
	}
	return count;
}
