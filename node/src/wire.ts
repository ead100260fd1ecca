/**
 * A wire under the engine, on this process's stdio or to a command: takes what the wire thread has read, hands it on one message at a
 * time, and gives back what the SDK answers. How an SDK is spoken to is the receiver's business; who won a
 * race was decided before anything comes here.
 *
 * Messages are handed on one by one, each after all that the one before it set off without waiting has
 * run. So a handler that blocks the loop holds up the requests behind it here, where a cancel still finds
 * them before they start.
 *
 * A handler's exit is its answer, or, once its request was cancelled, the end of what it returned.
 *
 * What becomes of requests of our own is told to their callers at once: it waits for nobody's handler.
 */

import { Calls } from './calls.js';
import { current, hand, lose, over, rest, within } from './context.js';
import { type Cause, causeOf } from './errors.js';
import { Kinds } from './kinds.js';
import { answer, parse } from './lines.js';
import type { Message, RequestId } from './mcp.js';
import native from './native.js';
import { reporting, tell } from './reports.js';
import { RequestToken, type TokenHome, type TokenNode } from './token.js';
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
	/** For a wire to a command: so many processes of its tree are left, which is none but for what outlives SIGKILL. */
	gone?(left: number): void;
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

const KIND = {
	message: 0,
	request: 1,
	cancelled: 2,
	writable: 3,
	closed: 4,
	settled: 5,
	progress: 6,
	abandoned: 7,
	gone: 8,
};
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
const MAX_UNSTARTED = 256;
const DONE = Promise.resolve();

/** What kind of wire it is. */
export interface Nature {
	/** Handlers that are known to answer at once are handed their requests without a context. */
	brief: boolean;
	/** The peer is a command that we have started: the wire is over when nothing is left of it. */
	command: boolean;
}

export class Wire implements TokenHome {
	/** Requests whose handler has not exited, and for which the context is carried on: of all wires. */
	static #tracked = 0;
	readonly #receiver: Receiver;
	readonly #nature: Nature;
	readonly #handle: number;
	readonly #events: Uint32Array;
	readonly words: Words;
	/** Requests of our own, beside those of the SDK. */
	readonly calls: Calls;
	/** Requests that were handed on and are neither answered nor cancelled, by the id that the SDK knows. */
	readonly #open = new Map<RequestId, RequestToken>();
	/** Nothing else keeps a process alive that only listens for its peer. */
	readonly #alive = setInterval(() => {}, 2 ** 31 - 1);
	/** Cancelled requests that no handler was seen to start for, the newest. */
	readonly #unstarted = new Map<RequestId, RequestToken>();
	readonly #kinds = new Kinds();
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
	#left: number | undefined;
	#closed = false;
	#gone = false;

	/** @param open makes the wire; `wake` is to be called when events wait */
	constructor(
		receiver: Receiver,
		nature: Nature,
		open: (wake: () => void) => { handle: number; events: Uint32Array },
	) {
		this.#receiver = receiver;
		this.#nature = nature;
		try {
			const { handle, events } = open(this.#drainLater);
			this.#handle = handle;
			this.#events = events;
			this.words = new Words(handle);
			this.calls = new Calls(handle, () => this.#flush());
		} catch (error) {
			clearInterval(this.#alive);
			throw error;
		}
	}

	/**
	 * Sends a message of the SDK. Returns what to wait for where the peer reads more slowly than we write.
	 *
	 * @param related the request that it is sent for, where the SDK says so
	 */
	send(message: Message, related?: RequestId): Promise<void> | undefined {
		return this.#put(message, `${JSON.stringify(message)}\n`, related);
	}

	/** Sends a message that is serialized already, with its line end. */
	sendLine(line: string): Promise<void> | undefined {
		return this.#put(answer(line) ?? parse(line), line);
	}

	/** Ends the connection from our side, unless it is over; the process goes on. */
	close(): void {
		if (this.#cause !== undefined) return;
		this.#flush();
		native.close(this.#handle);
	}

	/** Writes what is collected, and waits for it, at most so many milliseconds. */
	flush(ms: number): void {
		this.#flush();
		native.flush(this.#handle, ms);
	}

	/** Whether nothing can be sent any more. */
	get over(): boolean {
		return this.#cause !== undefined;
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

	stats(): Stats | undefined {
		if (this.#gone) return undefined;
		return { ...native.stats(this.#handle), ...native.signals(this.#handle), open: this.#open.size };
	}

	prometheus(): string {
		return native.prometheus(this.#handle);
	}

	commit(generation: number): boolean {
		return native.commit(this.#handle, generation);
	}

	#put(message: Message | undefined, line: string, related?: RequestId): Promise<void> | undefined {
		if (this.#gone) return undefined;
		const id = message?.id;
		if (id !== undefined && id !== null) {
			if (message?.method === undefined) this.#answered(id);
			else if (this.#ask(line, related)) return this.#room;
		}
		if (this.#out.length + line.length > COLLECT) this.#flush();
		this.#out += line;
		if (line.length > COLLECT) this.#flush();
		else if (!this.#ticking) this.#flushLater();
		return this.#room;
	}

	/** Sends a request of the SDK's within that of the peer's for which it is made. False where there is none. */
	#ask(line: string, related: RequestId | undefined): boolean {
		const named = related === undefined ? undefined : this.find(related);
		const token = named ?? (current() as TokenNode | undefined);
		if (token?.owner().home !== this) return false;
		let handle = token.handle();
		const late = handle < 0 && token.cause !== undefined;
		// The SDK was told of the cancel, and its handler goes on: nothing more is sent for it.
		if (late) handle = native.tokenTripped(this.#handle, token.cause as Cause).handle;
		if (handle < 0) return false;
		this.#flush();
		this.#congested(native.submitWithin(this.#handle, line.slice(0, -1), handle));
		if (late) native.tokenClose(handle);
		return true;
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
		if (token.tracked) Wire.#tracked--;
		else over(token);
	}

	/** Each batch has a turn of the loop: under load a threadsafe function would call again and again within one. */
	readonly #drainLater = (): void => {
		setImmediate(this.#drain);
	};

	readonly #drain = (): void => {
		if (this.#gone) return;
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
				case KIND.settled:
					this.calls.settled(generation, line());
					break;
				case KIND.progress:
					this.calls.progressed(generation, line());
					break;
				case KIND.abandoned:
					this.calls.abandoned(generation, slot, events[at + 4] as number, line());
					break;
				case KIND.closed:
					this.#cause = causeOf(slot);
					break;
				case KIND.gone:
					this.#left = slot;
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
			if (this.#left !== undefined) this.#leave(this.#left);
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
		if (token.kind.brief && Wire.#tracked === 0 && this.#nature.brief) {
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
			Wire.#tracked++;
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
		this.#congested(native.submit(this.#handle, text));
	}

	/** @param told what a submit has said */
	#congested(told: number): void {
		if ((told & CONGESTED) !== 0) {
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
		if (!this.#nature.command) clearInterval(this.#alive);
		this.#report();
		if (cause === 'shutdown') process.exitCode ??= native.exitCode(this.#handle) ?? undefined;
		this.#writable();
		within(undefined, () => this.#receiver.closed(cause));
	}

	/** Nothing is left of the command at the other end. */
	#leave(left: number): void {
		if (this.#gone) return;
		this.#gone = true;
		clearInterval(this.#alive);
		this.calls.over();
		native.release(this.#handle);
		within(undefined, () => this.#receiver.gone?.(left));
	}
}
