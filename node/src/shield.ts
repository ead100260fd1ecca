/**
 * Cleanup under a token of its own, with a budget. The token is the one that the shield was made with; who
 * made it decides whose request it is.
 */

import { within } from './context.js';
import type { Token, TokenNode } from './token.js';

/** Runs `cleanup` under a token that trips after `ms`, and waits for it until then and not longer. */
export async function shielded<R>(
	token: TokenNode,
	ms: number,
	cleanup: (token: Token) => R | PromiseLike<R>,
): Promise<R> {
	let timer: NodeJS.Timeout | undefined;
	try {
		return await new Promise<R>((resolve, reject) => {
			timer = setTimeout(() => {
				token.trip('timeout');
				reject(token.error());
			}, ms);
			// What it does after its time is nobody's business: a late rejection must not end the process.
			Promise.resolve(within(token, cleanup, token)).then(resolve, reject);
		});
	} finally {
		clearTimeout(timer);
		token.settle();
	}
}
