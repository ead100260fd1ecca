/**
 * Tokens. Whether one has tripped stands in memory that the wire thread writes: reading it crosses no
 * border and needs no event loop, so that even code which never yields can see its cancel.
 *
 * What needs the event loop (signals, callbacks, promises) follows when the loop gets to it. The word
 * decides; nothing here does.
 */

import { within } from './context.js';
import { CancelledError, type Cause, causeOf } from './errors.js';
import { freshen } from './fresh-signal.js';
import type { Kind } from './kinds.js';
import { guarded, type Loopable, type WebStream } from './loops.js';
import native from './native.js';
import {
	type ChildTree,
	type Order,
	Refused,
	type RunOptions,
	type RunResult,
	type SpawnOptions,
	Tree,
} from './process.js';
import { shielded } from './shield.js';
import { type Address, codeOf, liveWord, Words } from './words.js';

/** A request's cancellation, as its handler sees it. */
export interface Token {
	/** Whether it has tripped. Takes nanoseconds, and is true at once, also in a loop that never yields. */
	readonly cancelled: boolean;
	/** Why it tripped. */
	readonly cause: Cause | undefined;
	/** Why, in the words of whoever cancelled, if there were any. From the peer: not to be trusted. */
	readonly reason: string | undefined;
	/** The request's id, as the peer gave it; a `bigint` where a number could not hold it. */
	readonly requestId: string | number | bigint;
	/** An `AbortSignal` that is aborted, with a `CancelledError` as its reason, when the token trips. */
	readonly signal: AbortSignal;
	/** Throws a `CancelledError` if the token has tripped. */
	checkpoint(): void;
	/** Resolves with the cause when the token trips; stays pending if that never happens. */
	whenCancelled(): Promise<Cause>;
	/** Calls `callback` once when the token trips (soon, if it has). Returns a function that takes it back. */
	onCancel(callback: (cause: Cause) => void): () => void;
	/** A token that trips with this one, and can be cancelled alone. */
	child(): Token;
	/**
	 * Says that the request has committed an effect that cannot be taken back, as a mail that was sent. If it is
	 * cancelled, before or after, it counts as abandoned with effects in `stats()`. False once it was answered.
	 */
	commit(): boolean;
	/**
	 * Lets cleanup await although this token has tripped, for `ms` and not longer. In `cleanup`, `current()` is a
	 * token of its own, which trips with cause `timeout` when the time is over; the promise then rejects at once
	 * with its `CancelledError`, whatever `cleanup` does.
	 */
	shield<R>(ms: number, cleanup: (token: Token) => R | PromiseLike<R>): Promise<R>;
	/**
	 * What `source` yields, up to the trip: then the loop over it ends with a `CancelledError`, also while it waits
	 * for the next item, and the source is closed (`return()` of an iterator, `destroy()` of a stream, `cancel()`
	 * of a web stream).
	 */
	guard<T>(source: AsyncIterable<T> | WebStream<T>): AsyncGenerator<T, void, undefined>;
	guard<T>(source: Iterable<T>): Generator<T, void, undefined>;
	/**
	 * Cancels this token and its children from our side, with cause `local`; false if it had tripped before.
	 * The peer, which has not cancelled its request, still gets an answer.
	 */
	cancel(reason?: string): boolean;
	/**
	 * Runs a command that dies with this token, and everything that it starts with it. Resolves with what it wrote
	 * when nothing of it is left. What it leaves behind when it exits has the grace period to end too; what has
	 * to be ended gets SIGTERM, the grace period and SIGKILL. Dies within two seconds if this process does.
	 *
	 * Rejects with the token's `CancelledError` when the token trips, or has (then nothing is started), and with the
	 * system's error where it cannot be started. An exit code is no error.
	 */
	run(command: string, args?: readonly string[], options?: RunOptions): Promise<RunResult>;
	/**
	 * As `run`, with a handle in place of the wait. The tree also ends when the request is answered, and with
	 * `await using`.
	 *
	 * @throws the token's `CancelledError` if it has tripped; the system's error where it cannot be started
	 */
	spawn(command: string, args?: readonly string[], options?: SpawnOptions): ChildTree;
}

/** Words for tokens whose request has ended: their state no longer changes. */
const FINAL = new Uint32Array([0, 1, 2, 3, 4, 5]);

/** The words of tokens that no wire trips. */
const FREE = new Words(native.FREE_TREE);

/** Where requests live: the wire. */
export interface TokenHome {
	readonly words: Words;
	/** The open request that the SDK knows by this id. */
	find(innerId: string | number): RequestToken | undefined;
	openToken(generation: number): { handle: number } | null;
	wireId(generation: number): string | undefined;
	/** The request has committed an effect. */
	commit(generation: number): boolean;
	/** The SDK will not answer this request any more: it was told to abort it. */
	unanswered(token: RequestToken): void;
}

export class TokenNode implements Token {
	#page: Uint32Array;
	#slot: number;
	/** The word while the token is live. */
	#live: number;
	#handle = -1;
	#children: TokenNode[] | undefined;
	#callbacks: Set<(cause: Cause) => void> | undefined;
	/** Made by the SDK, or by us when first needed. */
	#controller: AbortController | undefined;
	#aborted = false;
	#fresh = false;
	#promise: Promise<Cause> | undefined;
	#error: CancelledError | undefined;
	#reason: string | undefined;

	/** @param root the request's own token, unless this is it */
	constructor(
		readonly words: Words,
		slot: number,
		serial: number,
		readonly root: RequestToken | undefined,
	) {
		this.#page = words.page(slot);
		this.#slot = slot;
		this.#live = liveWord(serial);
	}

	get #code(): number {
		return codeOf(this.#page, this.#slot, this.#live);
	}

	/**
	 * A child for another thread, which may still look at its word when the request has ended: who asked for it
	 * closes it. `undefined` once the request has ended.
	 */
	lend(): (Address & { handle: number }) | undefined {
		const handle = this.handle();
		return handle < 0 ? undefined : { tree: this.words.tree, ...native.tokenLend(handle) };
	}

	get cancelled(): boolean {
		return this.#code !== 0;
	}

	get cause(): Cause | undefined {
		return causeOf(this.#code);
	}

	get reason(): string | undefined {
		if (this.#reason === undefined && this.cancelled) {
			const handle = this.handle();
			if (handle >= 0) this.#reason = native.tokenReason(handle) ?? undefined;
		}
		return this.#reason;
	}

	get requestId(): string | number | bigint {
		return this.owner().id;
	}

	get signal(): AbortSignal {
		this.#controller ??= new AbortController();
		const { signal } = this.#controller;
		if (!this.#fresh) {
			this.#fresh = true;
			freshen(signal, this);
			if (this.cancelled) this.fire();
		}
		return signal;
	}

	checkpoint(): void {
		if (this.cancelled) throw this.error();
	}

	whenCancelled(): Promise<Cause> {
		this.#promise ??= new Promise((resolve) => this.onCancel(resolve));
		return this.#promise;
	}

	onCancel(callback: (cause: Cause) => void): () => void {
		const cause = this.cause;
		if (cause !== undefined) {
			let wanted = true;
			queueMicrotask(() => {
				if (wanted) this.#call(callback, cause);
			});
			return () => {
				wanted = false;
			};
		}
		// Wrapped, so that one function given twice is called twice.
		const entry = (cause: Cause) => callback(cause);
		this.#callbacks ??= new Set();
		this.#callbacks.add(entry);
		return () => {
			this.#callbacks?.delete(entry);
		};
	}

	child(): Token {
		const owner = this.owner();
		const handle = this.handle();
		const made = handle < 0 ? undefined : native.tokenChild(handle);
		const child = new TokenNode(this.words, made?.slot ?? 0, made?.serial ?? 0, owner);
		if (made === undefined) {
			// The request has ended: the child is born as its parent stayed.
			child.#freeze(this.#code);
			child.#reason = this.reason;
		} else {
			child.#handle = made.handle;
			this.#children ??= [];
			this.#children.push(child);
		}
		return child;
	}

	commit(): boolean {
		const owner = this.owner();
		return owner.home.commit(owner.generation);
	}

	async shield<R>(ms: number, cleanup: (token: Token) => R | PromiseLike<R>): Promise<R> {
		const { handle, slot, serial } = native.tokenFree();
		const token = new TokenNode(FREE, slot, serial, this.owner());
		token.#handle = handle;
		return shielded(token, ms, cleanup);
	}

	guard<T>(source: AsyncIterable<T> | WebStream<T>): AsyncGenerator<T, void, undefined>;
	guard<T>(source: Iterable<T>): Generator<T, void, undefined>;
	guard<T>(source: Loopable<T>): AsyncGenerator<T, void, undefined> | Generator<T, void, undefined> {
		return guarded(this, source);
	}

	cancel(reason?: string): boolean {
		return this.trip('local', reason);
	}

	/** Trips it and its children from our side; false if it had tripped before. */
	trip(cause: Cause, reason?: string): boolean {
		const handle = this.handle();
		if (handle < 0 || !native.tokenTrip(handle, cause, reason)) return false;
		this.fire();
		return true;
	}

	async run(program: string, args: readonly string[] = [], options: RunOptions = {}): Promise<RunResult> {
		const tree = this.#start({ program, args, options, capture: true });
		const { code, signal } = await tree.ended;
		this.checkpoint();
		return { code, signal, ...(tree.output ?? { stdout: Buffer.alloc(0), stderr: Buffer.alloc(0) }) };
	}

	spawn(program: string, args: readonly string[] = [], options: SpawnOptions = {}): ChildTree {
		return this.#start({ program, args, options, capture: false });
	}

	#start(order: Order): Tree {
		this.checkpoint();
		const handle = this.handle();
		if (handle < 0) throw new Refused('ended', 'nothing is started for a request that was answered');
		try {
			const tree = new Tree(handle, order);
			this.owner().keep(tree);
			return tree;
		} catch (error) {
			throw error instanceof Refused && error.why === 'tripped' ? this.error() : error;
		}
	}

	/** Somebody asked for it. */
	wanted(): void {
		this.owner().kind?.isNotBrief();
	}

	/** The error that stands for this cancel: one per token, so that it can be recognised. */
	error(): CancelledError {
		this.#error ??= new CancelledError(this.cause ?? 'local', this.reason);
		return this.#error;
	}

	/** Aborts the signals and calls the callbacks of this token and its children, if they have tripped. */
	fire(): void {
		const cause = this.cause;
		if (cause === undefined) return;
		const controller = this.#controller;
		if (controller !== undefined && !this.#aborted) {
			this.#aborted = true;
			within(this, () => controller.abort(this.error()));
		}
		const callbacks = this.#callbacks;
		this.#callbacks = undefined;
		if (callbacks !== undefined) for (const callback of callbacks) this.#call(callback, cause);
		if (this.#children !== undefined) for (const child of this.#children) child.fire();
	}

	/** The request has ended. What the token says from here on is what it says now. */
	settle(): void {
		const code = this.#code;
		if (code !== 0) {
			// Asked now, since nobody will know later.
			void this.reason;
			this.fire();
		}
		const children = this.#children;
		this.#children = undefined;
		if (children !== undefined) for (const child of children) child.settle();
		this.#freeze(code);
		this.#callbacks = undefined;
		if (this.#handle >= 0) {
			native.tokenClose(this.#handle);
			this.#handle = -1;
		}
	}

	/** Aborts this one when it trips, in place of one of our own. */
	protected take(controller: AbortController): void {
		this.#controller ??= controller;
	}

	/** The native handle, made when first needed; negative once the request has ended. */
	handle(): number {
		if (this.#handle < 0 && this.#page !== FINAL) this.#handle = this.openHandle();
		return this.#handle;
	}

	protected openHandle(): number {
		return -1;
	}

	/** The token of the request that it belongs to. */
	owner(): RequestToken {
		return this.root as RequestToken;
	}

	#freeze(code: number): void {
		this.#page = FINAL;
		this.#slot = code;
		this.#live = 0;
	}

	#call(callback: (cause: Cause) => void, cause: Cause): void {
		try {
			within(this, callback, cause);
		} catch (error) {
			// A callback's mistake must not end the session of everybody else.
			process.emitWarning(error instanceof Error ? error : String(error));
		}
	}
}

/** The token of a request. */
export class RequestToken extends TokenNode {
	/** The id by which the SDK knows it. */
	innerId: string | number = '';
	/** What its handler returned, where we called the handler. */
	result: unknown;
	/** Whether it aborts the SDK's own controller: the SDK need not be told. */
	adopted = false;
	/** What is known of its like. */
	kind: Kind | undefined;
	/** Whether it counts among those for which the context must be carried on. */
	tracked = false;
	#id: string | number | bigint | undefined;
	#trees: Set<Tree> | undefined;

	constructor(
		readonly home: TokenHome,
		readonly generation: number,
		slot: number,
		serial: number,
	) {
		super(home.words, slot, serial, undefined);
	}

	/** Its handler starts, and listens to this controller, which the SDK made for it. */
	adopt(controller: AbortController): void {
		this.adopted = true;
		this.take(controller);
	}

	/** Its message was read: this is its id. */
	named(innerId: string | number): void {
		this.innerId = innerId;
		if (typeof innerId === 'string' && innerId.startsWith('countermand:')) {
			// An alias, most likely: the peer's own id can only be asked for while the request is open.
			const json = this.home.wireId(this.generation);
			if (json !== undefined) this.#id = parseId(json);
		}
	}

	/** A tree that ends with this request. */
	keep(tree: Tree): void {
		this.#trees ??= new Set();
		const trees = this.#trees.add(tree);
		void tree.ended.then(() => trees.delete(tree));
	}

	override settle(): void {
		super.settle();
		if (this.#trees !== undefined) for (const tree of this.#trees) tree.end();
	}

	override cancel(reason?: string): boolean {
		const cancelled = super.cancel(reason);
		if (cancelled && this.adopted) this.home.unanswered(this);
		return cancelled;
	}

	get id(): string | number | bigint {
		return this.#id ?? this.innerId;
	}

	protected override openHandle(): number {
		return this.home.openToken(this.generation)?.handle ?? -1;
	}

	override owner(): RequestToken {
		return this;
	}
}

export function parseId(json: string): string | number | bigint {
	const id = JSON.parse(json) as string | number;
	if (typeof id === 'string' || Number.isSafeInteger(id)) return id;
	return /^-?\d+$/.test(json) ? BigInt(json) : id;
}
