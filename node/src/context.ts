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
/** Requests that were known to be brief and were not: nothing carries their context. */
const lost = new Set<TokenNode>();

/**
 * The token of the request that this code runs for, however deep below its handler; `undefined` where no
 * guarded request is being handled.
 */
export function current(): Token | undefined {
	const token = holder() ?? (lost.size === 1 ? first(lost) : undefined);
	token?.wanted();
	return token;
}

/** The token that is certainly meant, for our own use. */
export function holder(): TokenNode | undefined {
	return storage.getStore() ?? handing;
}

function first<T>(set: Set<T>): T | undefined {
	for (const item of set) return item;
	return undefined;
}

/** Calls `fn` for this token, and carries it on to whatever that sets off. */
export function within<A extends unknown[], R>(
	token: TokenNode | undefined,
	fn: (...args: A) => R,
	...args: A
): R {
	if (token === undefined && !tracking) return fn(...args);
	tracking = true;
	return storage.run(token, fn, ...args);
}

/** Until the next call, what runs is for this token. Only where nothing else is in flight that waits. */
export function hand(token: TokenNode | undefined): void {
	handing = token;
}

/** This request was handed on without a context, and goes on. Its kind is never handed on so again. */
export function lose(token: TokenNode): void {
	lost.add(token);
}

/** This request is over. */
export function over(token: TokenNode): void {
	lost.delete(token);
}

/** Carries nothing on until `within` is called again. */
export function rest(): void {
	if (!tracking) return;
	tracking = false;
	storage.disable();
}
