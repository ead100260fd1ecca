/**
 * What the threads of the pool run: it loads the function that a job asks for, and calls it for the job's
 * token.
 */

import type { Address } from './words.js';
import { working } from './worker-token.js';

/** What is sent to a worker. */
export interface Job {
	/** The URL of the module. */
	file: string;
	/** The name of its export. */
	name: string;
	data: unknown;
	token: Address | undefined;
}

type Exports = Record<string, unknown> & { default?: unknown };

/** Does one job. */
export default async function work({ file, name, data, token }: Job): Promise<unknown> {
	const exports = (await import(file)) as Exports;
	// A CommonJS module that was an ES module has its exports one step further down.
	const found = exports[name] ?? (exports.default as Exports | undefined)?.[name];
	const fn = typeof found === 'object' ? (found as Exports | null)?.default : found;
	if (typeof fn !== 'function') throw new TypeError(`${file} exports no function '${name}'`);
	return working(token, () => fn(data));
}
