/**
 * Abort signals, shared: one listener a signal, however many calls it may cancel, and none once the last of them ended.
 */

/** What is to hear of an abort. */
interface Aborted {
	aborted(reason: unknown): void;
}

class Group {
	readonly #members = new Set<Aborted>();

	constructor(private readonly signal: AbortSignal) {}

	add(member: Aborted): void {
		if (this.#members.size === 0) this.signal.addEventListener('abort', this.#abort);
		this.#members.add(member);
	}

	remove(member: Aborted): void {
		if (this.#members.delete(member) && this.#members.size === 0) {
			this.signal.removeEventListener('abort', this.#abort);
		}
	}

	readonly #abort = (): void => {
		const members = [...this.#members];
		this.#members.clear();
		this.signal.removeEventListener('abort', this.#abort);
		for (const member of members) member.aborted(this.signal.reason);
	};
}

const groups = new WeakMap<AbortSignal, Group>();

/** Tells this one when the signal is aborted. Returns what takes that back. */
export function onAbort(signal: AbortSignal, member: Aborted): () => void {
	let group = groups.get(signal);
	if (group === undefined) {
		group = new Group(signal);
		groups.set(signal, group);
	}
	const joined = group;
	joined.add(member);
	return () => joined.remove(member);
}
