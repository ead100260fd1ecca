/**
 * Process trees: what `token.run` and `token.spawn` start, and the handle on it.
 *
 * The engine starts and ends them; this says what to start, and tells when something has become of it.
 */

import { Socket } from 'node:net';
import { constants } from 'node:os';
import type { Readable, Writable } from 'node:stream';
import { fileURLToPath } from 'node:url';
import { getSystemErrorName } from 'node:util';
import native from './native.js';

/** How a command exited: with a code, or by a signal. */
export interface Exit {
	code: number | null;
	signal: NodeJS.Signals | null;
}

/** What came of a command that was run. */
export interface RunResult extends Exit {
	stdout: Buffer;
	stderr: Buffer;
}

/** How a command is run, and how its tree is kept. */
export interface TreeOptions {
	/** The folder in which it runs; that of this process unless given. */
	cwd?: string | URL;
	/** Its whole environment; that of this process unless given. */
	env?: NodeJS.ProcessEnv;
	/** Whether it gets a session of its own, and not only a process group. */
	session?: boolean;
	/** Milliseconds between SIGTERM and SIGKILL; 2000 unless given. */
	graceMs?: number;
}

export interface RunOptions extends TreeOptions {
	/** What it reads from its stdin, which is empty otherwise. */
	input?: string | Uint8Array;
}

/**
 * Where a stream leads: to a pipe, nowhere, to this process's own, or to a descriptor. While a server runs on
 * stdio, this process's own stdout is its stderr.
 */
export type Redirect = 'pipe' | 'ignore' | 'inherit' | number;

export interface SpawnOptions extends TreeOptions {
	/** For stdin, stdout and stderr, together or each; pipes unless given. */
	stdio?: Redirect | readonly [Redirect, Redirect, Redirect];
}

/**
 * A command that was started, and whatever it started. The tree ends with its token, with its request, with
 * this process, and with `await using`.
 */
export interface ChildTree {
	/** The command's process, and its process group. */
	readonly pid: number;
	/** `null` where it is no pipe, as for the others. */
	readonly stdin: Writable | null;
	readonly stdout: Readable | null;
	readonly stderr: Readable | null;
	/** Resolves when the command has exited. Never rejects. */
	readonly exited: Promise<Exit>;
	/**
	 * How many processes of the tree outlived SIGKILL: none but those that this user may not kill, or that hang in
	 * the kernel.
	 */
	readonly left: number;
	/**
	 * Ends the tree, with SIGTERM, the grace period and SIGKILL. Resolves when nothing of it is left. Never
	 * rejects.
	 */
	stop(): Promise<Exit>;
	/** Ends the tree and destroys the streams. */
	[Symbol.asyncDispose](): Promise<void>;
}

/** A command as the engine takes it. */
export interface Order {
	program: string;
	args: readonly string[];
	options: SpawnOptions & RunOptions;
	/** Its output is collected. */
	capture: boolean;
}

/** Nothing was started. */
export class Refused extends Error {
	constructor(
		readonly why: string,
		message: string,
	) {
		super(message);
	}
}

const PIPE = -1;
const IGNORE = -3;
const SIGNALS = new Map(
	Object.entries(constants.signals).map(([name, number]) => [number, name as NodeJS.Signals]),
);

/** Trees that have not ended, by handle. */
const live = new Map<number, Tree>();
let listening = false;
/** Keeps the process alive while it has trees, as a child process would. */
let alive: NodeJS.Timeout | undefined;

export class Tree implements ChildTree {
	readonly pid: number;
	readonly stdin: Writable | null;
	readonly stdout: Readable | null;
	readonly stderr: Readable | null;
	readonly exited: Promise<Exit>;
	/** Resolves when nothing of it is left. */
	readonly ended: Promise<Exit>;
	left = 0;
	output: { stdout: Buffer; stderr: Buffer } | undefined;
	readonly #handle: number;
	#exit: Exit = { code: null, signal: null };
	#toldExit: (exit: Exit) => void = () => {};
	#toldEnd: (exit: Exit) => void = () => {};

	/**
	 * Starts a tree under a token.
	 *
	 * @throws {Refused} if it cannot, or the system's error
	 */
	constructor(token: number, order: Order) {
		if (!listening) {
			listening = true;
			native.treesListen((key) => live.get(key >>> 1)?.told((key & 1) !== 0));
		}
		const started = native.treeStart(token, translated(order));
		if ('refused' in started) throw failure(started, order);
		this.#handle = started.handle;
		this.pid = started.pid;
		this.stdin = stream(started.stdin, false);
		this.stdout = stream(started.stdout, true);
		this.stderr = stream(started.stderr, true);
		this.exited = new Promise((resolve) => {
			this.#toldExit = resolve;
		});
		this.ended = new Promise((resolve) => {
			this.#toldEnd = resolve;
		});
		live.set(this.#handle, this);
		alive ??= setInterval(() => {}, 2 ** 31 - 1);
	}

	/** Has it end; returns at once. */
	end(): void {
		native.treeStop(this.#handle);
	}

	stop(): Promise<Exit> {
		this.end();
		return this.ended;
	}

	async [Symbol.asyncDispose](): Promise<void> {
		await this.stop();
		for (const stream of [this.stdin, this.stdout, this.stderr]) stream?.destroy();
	}

	/** The command has exited, or all of the tree has ended. */
	told(ended: boolean): void {
		const exit = native.treeExit(this.#handle);
		if (exit !== null) {
			this.#exit = { code: exit.code ?? null, signal: SIGNALS.get(exit.signal ?? 0) ?? null };
		}
		this.#toldExit(this.#exit);
		if (!ended) return;
		this.left = native.treeLeft(this.#handle);
		this.output = native.treeOutput(this.#handle) ?? undefined;
		live.delete(this.#handle);
		native.treeClose(this.#handle);
		if (live.size === 0) {
			clearInterval(alive);
			alive = undefined;
		}
		this.#toldEnd(this.#exit);
	}
}

export function translated({ program, args, options, capture }: Order): native.TreeOptions {
	const env = Object.entries(options.env ?? process.env);
	const { cwd, stdio = 'pipe', graceMs, input } = options;
	const each = typeof stdio === 'object' ? stdio : [stdio, stdio, stdio];
	return {
		program,
		args: [...args],
		env: env.flatMap(([name, value]) => (value === undefined ? [] : [name, value])),
		stdio: capture ? [input === undefined ? IGNORE : PIPE, PIPE, PIPE] : each.map(descriptor),
		session: options.session ?? false,
		...(cwd === undefined ? {} : { cwd: typeof cwd === 'string' ? cwd : fileURLToPath(cwd) }),
		...(graceMs === undefined ? {} : { graceMs }),
		...(capture ? { input: Buffer.from(input ?? '') } : {}),
	};
}

function descriptor(to: Redirect, own: number): number {
	if (to === 'pipe') return PIPE;
	if (to === 'ignore') return IGNORE;
	return to === 'inherit' ? own : to;
}

export function stream(fd: number | undefined, readable: boolean): Socket | null {
	if (fd === undefined) return null;
	const socket = new Socket({ fd, readable, writable: !readable });
	// A command that reads no more is no reason for this process to die. Who listens hears of it all the same.
	socket.on('error', () => {});
	return socket;
}

/** As Node's own `spawn` would put it. */
export function failure(
	{ refused, errno, message }: native.RefusedTree,
	order: Pick<Order, 'program' | 'options'>,
): Error {
	if (errno === undefined) return new Refused(refused, message);
	const code = getSystemErrorName(-errno);
	const syscall = refused === 'system' ? 'spawn' : `spawn ${order.program}`;
	const path = refused === 'cwd' ? String(order.options.cwd) : order.program;
	return Object.assign(new Error(`${message}: ${code}`), { code, errno: -errno, syscall, path });
}
