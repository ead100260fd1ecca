/**
 * Signals that are as fresh as their token.
 *
 * An `AbortSignal` is aborted by an event, and a loop that never yields gets no events. Many tools poll
 * `signal.aborted` in just such loops. So a token's `signal` looks at the token's word when
 * it is asked, and aborts itself then and there. Only the one object is touched: it stays a real
 * `AbortSignal`, with its listeners, and is what `fetch` or `spawn` expect.
 */

import type { TokenNode } from './token.js';

const aborted = Object.getOwnPropertyDescriptor(AbortSignal.prototype, 'aborted')?.get as () => boolean;

export function freshen(signal: AbortSignal, token: TokenNode): void {
	const look = (): boolean => {
		if (aborted.call(signal)) return true;
		if (!token.cancelled) return false;
		token.fire();
		return aborted.call(signal);
	};
	Object.defineProperties(signal, {
		aborted: { configurable: true, get: look },
		throwIfAborted: {
			configurable: true,
			value: () => {
				if (look()) throw signal.reason;
			},
		},
	});
}
