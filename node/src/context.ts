/**
 * The request's token, anywhere below its handler.
 *
 * `AsyncLocalStorage` carries it across everything that a handler awaits. On the Node versions that do
 * this with hooks on every promise, that costs a fast server a third of its speed, so it is switched off
 * while all that is in flight is known to end before the next request is handed on (`kinds`). In that
 * time the request at hand is the one that is being handed on.
 */

import { AsyncLocalStorage } from 'node:async_hooks';
import type { Token, TokenNode } from './token.js';

const storage = new AsyncLocalStorage<TokenNode | undefined>();
let tracking = false;
let handing: TokenNode | undefined;

/**
 * The token of the request that this code runs for, however deep below its handler; `undefined` where no
 * guarded request is being handled.
 */
export function current(): Token | undefined {
	const token = holder();
	token?.wanted();
	return token;
}

/** As `current`, for our own use. */
export function holder(): TokenNode | undefined {
	return storage.getStore() ?? handing;
}

/** Calls `fn` for this token, and carries it on to whatever that sets off. */
export function within<A extends unknown[], R>(
	token: TokenNode | undefined,
	fn: (...args: A) => R,
	...args: A
): R {
	tracking = true;
	return storage.run(token, fn, ...args);
}

/** Until the next call, what runs is for this token. Only where nothing else is in flight that waits. */
export function hand(token: TokenNode | undefined): void {
	handing = token;
}

/** Carries nothing on until `within` is called again. */
export function rest(): void {
	if (!tracking) return;
	tracking = false;
	storage.disable();
}
