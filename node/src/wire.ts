/**
 * The process's stdio under the engine: takes what the wire thread has read, hands it on one message at a
 * time, and gives back what the SDK answers. How an SDK is spoken to is the receiver's business; who won a
 * race was decided before anything comes here.
 *
 * Messages are handed on one by one, each after all that the one before it set off without waiting has
 * run. So a handler that blocks the loop holds up the requests behind it here, where a cancel still finds
 * them before they start.
 *
 * A handler's exit is its answer, or, once its request was cancelled, the end of what it returned.
 */

import { hand, lose, over, rest, within } from './context.js';
import type { Cause } from './errors.js';
import { causeOf } from './errors.js';
import { Kinds } from './kinds.js';
import type { Message, RequestId } from './mcp.js';
import native from './native.js';
import { reporting, tell } from './reports.js';
import { RequestToken, type TokenHome } from './token.js';
import { Words } from './words.js';

/** Who speaks to the SDK. */
export interface Receiver {
	/** A message of the peer, as a line without its end and as what it says. */
	deliver(message: Message, line: string): void;
	/** A line that is not JSON. */
	malformed(line: string, error: Error): void;
	/** The SDK is to abort this request by itself, and will not answer it. */
	cancel(id: RequestId, reason: string | undefined): void;
	/** The queue toward the peer has room again. */
	writable(): void;
	/** The connection is over. */
	closed(cause: Cause): void;
}

/** The engine's settings. What is not given has a default. */
export type WireOptions = Omit<native.WireOptions, 'connection'> & {
	/** How ids are matched, and the bounds of what a peer can make us keep. */
	connection?: Omit<native.ConnectionOptions, 'wire' | 'alias'>;
};

/** Counters and table sizes; see the native declarations for each. */
export type Stats = native.Stats &
	native.Signals & {
		/** Requests that were handed to the SDK and are neither answered nor cancelled. */
		open: number;
	};

interface Waiting {
	line: string;
	token: RequestToken | undefined;
}

const KIND = { message: 0, request: 1, cancelled: 2, writable: 3, closed: 4 };
const HEAD_WORDS = 2;
const EVENT_WORDS = 5;
/** Enough to make a crossing cheap, few enough that timers and sockets get their turn. */
const BATCH = 64;
/**
 * What is collected in characters before it is sent, whatever is still to be handed on: what a pipe takes in
 * one piece, so that this thread can write it itself, and the peer has something to do while we go on.
 */
const COLLECT = 4096;
const CONGESTED = 1;
/** How long the last frames may take when the process exits by itself, in milliseconds. */
const LAST_WORDS = 500;
const MAX_UNSTARTED = 256;
const SIGNALS = ['SIGTERM', 'SIGINT'] as const;
const DONE = Promise.resolve();
/** An id and the end of its message, without the escapes that would take a parser. */
const SIMPLE_ID = /^(?:"([^"\\]*)"|(-?\d{1,15}))\}\n$/;

let opened: Wire | undefined;
const ends = new Set<() => void>();

export class Wire implements TokenHome {
	readonly #receiver: Receiver;
	readonly #handle: number;
	readonly #events: Uint32Array;
	readonly words: Words;
	/** Requests that were handed on and are neither answered nor cancelled, by the id that the SDK knows. */
	readonly #open = new Map<RequestId, RequestToken>();
	/** Nothing else keeps a process alive that only listens for its peer. */
	readonly #alive = setInterval(() => {}, 2 ** 31 - 1);
	/** Cancelled requests that no handler was seen to start for, the newest. */
	readonly #unstarted = new Map<RequestId, RequestToken>();
	readonly #kinds = new Kinds();
	/** Requests whose handler has not exited, and for which the context is carried on. */
	#tracked = 0;
	/** The request that was handed on last. */
	#last: RequestToken | undefined;
	#waiting: Waiting[] = [];
	#next = 0;
	#ticking = false;
	#more = false;
	#out = '';
	#flushing = false;
	#room: Promise<void> | undefined;
	#hasRoom: (() => void) | undefined;
	#cause: Cause | undefined;
	#closed = false;

	/**
	 * Takes over stdin and stdout.
	 *
	 * @param falsyIds whether `0` and `""` are given to the SDK under another name, because SDK 1.x does
	 * not find them when it is told of a cancel
	 * @throws if they are taken already
	 */
	constructor(receiver: Receiver, falsyIds: boolean, options: WireOptions = {}) {
		this.#receiver = receiver;
		const alias = { beyondF64: true, falsy: falsyIds };
		for (const signal of SIGNALS) forgetDefault(signal);
		try {
			const connection = { ...options.connection, alias };
			const { handle, events } = native.openStdio({ ...options, connection }, this.#drainLater);
			this.#handle = handle;
			this.#events = events;
			this.words = new Words(handle);
		} catch (error) {
			clearInterval(this.#alive);
			throw error;
		}
		process.on('exit', () => {
			this.#flush();
			native.flush(this.#handle, LAST_WORDS);
		});
		opened = this;
	}

	/** Sends a message of the SDK. Returns what to wait for where the peer reads more slowly than we write. */
	send(message: Message): Promise<void> | undefined {
		return this.#put(message, `${JSON.stringify(message)}\n`);
	}

	/** Sends a message that is serialized already, with its line end. */
	sendLine(line: string): Promise<void> | undefined {
		return this.#put(this.#open.size > 0 ? (answer(line) ?? parse(line)) : undefined, line);
	}

	/** Ends the connection from our side, unless it is over; the process goes on. */
	close(): void {
		if (this.#cause !== undefined) return;
		this.#flush();
		native.close(this.#handle);
	}

	find(id: RequestId): RequestToken | undefined {
		return this.#open.get(id) ?? this.#unstarted.get(id);
	}

	openToken(generation: number): { handle: number } | null {
		return native.tokenOpen(this.#handle, generation);
	}

	wireId(generation: number): string | undefined {
		return native.wireId(this.#handle, generation) ?? undefined;
	}

	stats(): Stats {
		return { ...native.stats(this.#handle), ...native.signals(this.#handle), open: this.#open.size };
	}

	prometheus(): string {
		return native.prometheus(this.#handle);
	}

	commit(generation: number): boolean {
		return native.commit(this.#handle, generation);
	}

	#put(message: Message | undefined, line: string): Promise<void> | undefined {
		const id = message?.id;
		if (id !== undefined && id !== null && message?.method === undefined) this.#answered(id);
		if (this.#out.length + line.length > COLLECT) this.#flush();
		this.#out += line;
		if (line.length > COLLECT) this.#flush();
		else if (!this.#ticking) this.#flushLater();
		return this.#room;
	}

	#answered(id: RequestId): void {
		const token = this.#open.get(id);
		if (token === undefined) return;
		this.#open.delete(id);
		if (token.tracked) native.finish(this.#handle, token.generation);
		this.#exited(token);
	}

	#exited(token: RequestToken): void {
		token.settle();
		if (token.tracked) this.#tracked--;
		else over(token);
	}

	/** Each batch has a turn of the loop: under load a threadsafe function would call again and again within one. */
	readonly #drainLater = (): void => {
		setImmediate(this.#drain);
	};

	readonly #drain = (): void => {
		const text = native.drain(this.#handle, BATCH) ?? '';
		const events = this.#events;
		const count = events[0] as number;
		this.#more = events[1] !== 0;
		let from = 0;
		const line = (): string => {
			const end = text.indexOf('\n', from);
			const found = text.slice(from, end);
			from = end + 1;
			return found;
		};
		for (let at = HEAD_WORDS; at < HEAD_WORDS + count * EVENT_WORDS; at += EVENT_WORDS) {
			const generation = (events[at + 1] as number) + (events[at + 2] as number) * 2 ** 32;
			const slot = events[at + 3] as number;
			switch (events[at]) {
				case KIND.message:
					this.#waiting.push({ line: line(), token: undefined });
					break;
				case KIND.request:
					this.#waiting.push({
						line: line(),
						token: new RequestToken(this, generation, slot, events[at + 4] as number),
					});
					break;
				case KIND.cancelled:
					this.#cancelled(JSON.parse(line()) as RequestId, generation);
					break;
				case KIND.writable:
					this.#writable();
					break;
				case KIND.closed:
					this.#cause = causeOf(slot);
					break;
			}
		}
		this.#tickLater();
	};

	/** Each tick follows when all that runs without waiting has run. */
	#tickLater(): void {
		if (this.#ticking) return;
		this.#ticking = true;
		void DONE.then(this.#yield);
	}

	readonly #yield = (): void => {
		process.nextTick(this.#tick);
	};

	readonly #tick = (): void => {
		if (this.#last !== undefined) this.#judge(this.#last);
		while (this.#next < this.#waiting.length) {
			const { line, token } = this.#waiting[this.#next++] as Waiting;
			// The word of the core: cancelled while it waited here, so its handler must not start.
			if (token?.cancelled) {
				this.#discard(token);
				continue;
			}
			void DONE.then(this.#yield);
			this.#deliver(line, token);
			return;
		}
		this.#waiting = [];
		this.#next = 0;
		this.#ticking = false;
		this.#flush();
		if (this.#more) {
			this.#more = false;
			this.#drainLater();
		} else if (this.#cause !== undefined) {
			this.#end(this.#cause);
		}
	};

	#deliver(line: string, token: RequestToken | undefined): void {
		let message: Message;
		try {
			message = JSON.parse(line) as Message;
		} catch (error) {
			if (token !== undefined) native.discard(this.#handle, token.generation);
			this.#receiver.malformed(line, error as Error);
			return;
		}
		if (token === undefined) {
			within(undefined, this.#hand, message, line);
			return;
		}
		token.named(message.id as RequestId);
		token.kind = this.#kinds.of(message);
		this.#open.set(token.innerId, token);
		this.#unstarted.delete(token.innerId);
		this.#last = token;
		if (token.kind.brief && this.#tracked === 0) {
			rest();
			hand(token);
			this.#hand(message, line);
		} else {
			// It may keep the loop for itself: what was answered before does not wait for it.
			this.#flush();
			if (!native.start(this.#handle, token.generation)) {
				this.#open.delete(token.innerId);
				this.#last = undefined;
				this.#discard(token);
				return;
			}
			token.tracked = true;
			this.#tracked++;
			within(token, this.#hand, message, line);
		}
	}

	readonly #hand = (message: Message, line: string): void => {
		this.#receiver.deliver(message, line);
	};

	/** Cancelled before it was handed on: the SDK never sees it. */
	#discard(token: RequestToken): void {
		native.discard(this.#handle, token.generation);
		this.#report();
	}

	/** All has run that this request set off without waiting: is it done? */
	#judge(token: RequestToken): void {
		this.#last = undefined;
		hand(undefined);
		if (this.#open.get(token.innerId) !== token) {
			token.kind?.wasBrief();
			return;
		}
		token.kind?.isNotBrief();
		if (!token.tracked) lose(token);
	}

	#cancelled(id: RequestId, generation: number): void {
		const token = this.#open.get(id);
		// Still waiting here: found cancelled when its turn comes.
		if (token?.generation !== generation) return;
		token.fire();
		if (token.adopted) {
			this.unanswered(token);
			return;
		}
		// Nobody sees its handler: the SDK is told, and that stands for the exit.
		const reason = token.reason;
		this.#open.delete(id);
		this.#exited(token);
		native.abandon(this.#handle, generation);
		this.#report();
		this.#told(token);
		within(token, () => this.#receiver.cancel(id, reason));
	}

	unanswered(token: RequestToken): void {
		this.#open.delete(token.innerId);
		// Its handler is done when what it returned is.
		const exited = () => {
			this.#exited(token);
			native.abandon(this.#handle, token.generation);
			this.#report();
		};
		void Promise.resolve(token.result).then(exited, exited);
	}

	/** Remembers a request that the SDK may hold back, and start after it was told of its cancel. */
	#told(token: RequestToken): void {
		this.#unstarted.set(token.innerId, token);
		if (this.#unstarted.size <= MAX_UNSTARTED) return;
		for (const oldest of this.#unstarted.keys()) {
			this.#unstarted.delete(oldest);
			return;
		}
	}

	/** Once for all that is answered in this turn of the loop. */
	#flushLater(): void {
		if (this.#flushing) return;
		this.#flushing = true;
		setImmediate(this.#flushNow);
	}

	readonly #flushNow = (): void => {
		this.#flushing = false;
		this.#flush();
	};

	/** Tells of the cancelled requests that are over. */
	#report(): void {
		if (reporting()) tell(native.reports(this.#handle));
	}

	#flush(): void {
		if (this.#out === '') return;
		const text = this.#out;
		this.#out = '';
		if ((native.submit(this.#handle, text) & CONGESTED) !== 0) {
			this.#room ??= new Promise((resolve) => {
				this.#hasRoom = resolve;
			});
		}
	}

	#writable(): void {
		const hasRoom = this.#hasRoom;
		this.#room = undefined;
		this.#hasRoom = undefined;
		hasRoom?.();
		this.#receiver.writable();
	}

	#end(cause: Cause): void {
		if (this.#closed) return;
		this.#closed = true;
		clearInterval(this.#alive);
		this.#report();
		if (cause === 'shutdown') process.exitCode ??= native.exitCode(this.#handle) ?? undefined;
		this.#writable();
		within(undefined, () => this.#receiver.closed(cause));
		for (const callback of ends) callback();
		ends.clear();
	}
}

/**
 * Node's own handler ends the process before anything could unwind, and the engine's would call it. One
 * that this program has set stays.
 */
function forgetDefault(signal: NodeJS.Signals): void {
	const replaced = () => {};
	process.on(signal, replaced);
	process.off(signal, replaced);
}

/** What is needed of an answer in the form that the SDKs give it, `{"result":…,"id":…}`. */
function answer(line: string): Message | undefined {
	const at = line.lastIndexOf(',"id":');
	if (at < 0 || !line.startsWith('{"result":')) return undefined;
	const id = SIMPLE_ID.exec(line.slice(at + ',"id":'.length));
	if (id === null) return undefined;
	return { jsonrpc: '2.0', id: id[1] ?? Number(id[2]) };
}

function parse(line: string): Message | undefined {
	try {
		return JSON.parse(line) as Message;
	} catch {
		// Not ours to judge: the core decides what is written.
		return undefined;
	}
}

/**
 * Counters and table sizes of the wire on this process's stdio; `undefined` before it is opened.
 */
export function stats(): Stats | undefined {
	return opened?.stats();
}

/**
 * The same in the text format of Prometheus; empty before the wire is opened.
 *
 * [Exposition formats](https://prometheus.io/docs/instrumenting/exposition_formats/)
 */
export function prometheus(): string {
	return opened?.prometheus() ?? '';
}

/** Calls this once, when the connection is over. */
export function onEnd(callback: () => void): void {
	ends.add(callback);
}
