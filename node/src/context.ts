/**
 * The request's token, anywhere below its handler.
 */

import { AsyncLocalStorage } from 'node:async_hooks';
import type { Token } from './token.js';

export const storage: AsyncLocalStorage<Token | undefined> = new AsyncLocalStorage();

/**
 * The token of the request that this code runs for, however deep below its handler; `undefined` where no
 * guarded request is being handled.
 */
export function current(): Token | undefined {
	return storage.getStore();
}
