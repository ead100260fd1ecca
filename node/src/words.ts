/**
 * State words, where they live: in pages that the engine writes and every thread of this process can read.
 * What a word means to a token is here; what becomes of it is the token's.
 */

import native = require('./native.js');

const PAGE_BITS = 10;
const PAGE_MASK = (1 << PAGE_BITS) - 1;
/** A cause takes the low bits of a word, the serial of the slot the rest. */
const CAUSE_BITS = 3;
const CAUSE_MASK = (1 << CAUSE_BITS) - 1;

/** Where a token's word is, for another thread. */
export interface Address {
	/** The handle of its tree. */
	tree: number;
	slot: number;
	serial: number;
}

/** The pages of one tree of tokens. */
export class Words {
	readonly #pages: Uint32Array[] = [];

	/** @param tree the handle of a wire, or `FREE_TREE` */
	constructor(readonly tree: number) {}

	/** The page that has this slot's word. */
	page(slot: number): Uint32Array {
		const number = slot >>> PAGE_BITS;
		let page = this.#pages[number];
		if (page === undefined) {
			page = native.page(this.tree, number);
			this.#pages[number] = page;
		}
		return page;
	}
}

/** The word of a token that has not tripped. */
export function liveWord(serial: number): number {
	return (serial << CAUSE_BITS) >>> 0;
}

/** The cause's code: 0 while live, and for a slot that has another owner by now. */
export function codeOf(page: Uint32Array, slot: number, live: number): number {
	const code = Atomics.load(page, slot & PAGE_MASK) ^ live;
	return (code & ~CAUSE_MASK) === 0 ? code : 0;
}
