/**
 * What is known about requests of one kind: whether they end before the next request is handed on, and
 * whether they ask for their token.
 *
 * A kind is a method, or one tool. It is brief once enough of its requests in a row have ended at once and
 * none of them ever asked for its token. The first that does not, or that asks, ends that for good.
 */

import type { Message } from './mcp.js';

/** How many must have been brief before the next is taken to be. */
const ENOUGH = 16;
/** More kinds than any server has: peers choose the names. */
const MAX_KINDS = 1024;

export class Kind {
	#brief = 0;

	get brief(): boolean {
		return this.#brief >= ENOUGH;
	}

	/** One has ended at once. */
	wasBrief(): void {
		this.#brief++;
	}

	/** One has not, or has asked for its token. */
	isNotBrief(): void {
		this.#brief = Number.NEGATIVE_INFINITY;
	}
}

export class Kinds {
	readonly #methods = new Map<string, Kind>();
	readonly #tools = new Map<string, Kind>();

	of(message: Message): Kind {
		const name = message.method === 'tools/call' && (message.params as { name?: unknown } | undefined)?.name;
		return typeof name === 'string' ? find(this.#tools, name) : find(this.#methods, message.method ?? '');
	}
}

function find(kinds: Map<string, Kind>, name: string): Kind {
	let kind = kinds.get(name);
	if (kind === undefined) {
		if (kinds.size >= MAX_KINDS) kinds.clear();
		kind = new Kind();
		kinds.set(name, kind);
	}
	return kind;
}
