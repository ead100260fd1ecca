/**
 * The drop-in for the SDKs' `StdioClientTransport`: a server in a process tree of its own, with the engine on the wire
 * to it.
 */

import type { IOType } from 'node:child_process';
import { PassThrough, type Stream } from 'node:stream';
import native from './native.js';
import { failure, type Redirect, stream, translated } from './process.js';
import { type SendOptions, WireTransport } from './transport.js';
import { Wire, type WireOptions } from './wire.js';

/** The server to start: what the SDKs' transport takes. */
export interface StdioServerParameters {
	/** Looked up in the `PATH`, unless it has a slash. */
	command: string;
	args?: string[];
	/** Beside `getDefaultEnvironment()`, which a server has in any case. */
	env?: Record<string, string>;
	/** Where its stderr leads, as in Node's `spawn`: to this process's own unless given. */
	stderr?: IOType | Stream | number;
	/** That of this process unless given. */
	cwd?: string;
	/** The longest message that is read, in bytes; `maxFrame` is another name for it. */
	maxBufferSize?: number;
}

/** The engine's settings for a wire to a server. */
export type StdioClientOptions = Pick<WireOptions, 'maxFrame' | 'maxQueued' | 'connection'> & {
	/** How long the server has to end by itself once its stdin is closed, in milliseconds; 2,000 unless given. */
	closeWaitMs?: number;
	/** From SIGTERM to SIGKILL for what is left of its tree then, in milliseconds; 2,000 unless given. */
	graceMs?: number;
};

const CLOSE_WAIT_MS = 2000;

/** What a server inherits unless it is given more: the names that the SDKs let through. */
export const DEFAULT_INHERITED_ENV_VARS: readonly string[] = [
	'HOME',
	'LOGNAME',
	'PATH',
	'SHELL',
	'TERM',
	'USER',
];

/** Those of `DEFAULT_INHERITED_ENV_VARS` that are set, without exported shell functions. */
export function getDefaultEnvironment(): Record<string, string> {
	const set = DEFAULT_INHERITED_ENV_VARS.map((name) => [name, process.env[name]] as const);
	return Object.fromEntries(
		set.filter((pair): pair is [string, string] => pair[1] !== undefined && !pair[1].startsWith('()')),
	);
}

/**
 * A stdio transport for a client of either SDK, with the engine on the wire. The server, and whatever it starts, ends
 * with `close()` and with this process. A response that comes late, twice, or to no request reaches nobody.
 *
 * [Transports: stdio](https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#stdio)
 */
export class StdioClientTransport extends WireTransport {
	readonly #server: StdioServerParameters & StdioClientOptions;
	readonly #stderr: PassThrough | null;
	#pid: number | null = null;
	/** Resolves when nothing of the server is left. */
	#gone: Promise<void> | undefined;

	/** @param server the server to start, and the engine's settings */
	constructor(server: StdioServerParameters & StdioClientOptions) {
		super();
		this.#server = server;
		const piped = server.stderr === 'pipe' || server.stderr === 'overlapped';
		this.#stderr = piped ? new PassThrough() : null;
	}

	/** What the server writes to its stderr, where `stderr` is `pipe`; there from the beginning. */
	get stderr(): Stream | null {
		return this.#stderr;
	}

	/** The process of the server; `null` before it was started, and once nothing of it is left. */
	get pid(): number | null {
		return this.#pid;
	}

	/**
	 * Starts the server, and to read. May be called again when `close()` has resolved.
	 *
	 * @throws the system's error where it cannot be started; `onerror` is told as well
	 */
	async start(): Promise<void> {
		if (this.#gone !== undefined) {
			throw new Error("The transport is started already. (An SDK's connect() calls start() itself.)");
		}
		try {
			this.#open();
		} catch (error) {
			this.onerror?.(error as Error);
			throw error;
		}
	}

	/** Sends a message. Resolves when there is room for more. */
	override send(message: unknown, options?: SendOptions): Promise<void> {
		if (this.wire?.over !== false) return Promise.reject(new Error('Not connected'));
		return super.send(message, options);
	}

	/**
	 * Ends the connection and the server: its stdin is closed; what is left of its tree after `closeWaitMs` gets
	 * SIGTERM, and after `graceMs` SIGKILL. Resolves when nothing is left.
	 *
	 * [Lifecycle: shutdown](https://modelcontextprotocol.io/specification/2025-11-25/basic/lifecycle#shutdown)
	 */
	override async close(): Promise<void> {
		this.wire?.close();
		await this.#gone;
	}

	#open(): void {
		const { command, args = [], cwd, graceMs, closeWaitMs = CLOSE_WAIT_MS, ...more } = this.#server;
		const { env, stderr = 'inherit', maxBufferSize, maxFrame = maxBufferSize } = more;
		const order = {
			program: command,
			args,
			capture: false,
			options: {
				env: { ...getDefaultEnvironment(), ...env },
				stdio: ['pipe', 'pipe', redirect(stderr)] as const,
				...(cwd === undefined ? {} : { cwd }),
				...(graceMs === undefined ? {} : { graceMs }),
			},
		};
		// SDK 1.x does not find the ids 0 and "" when it is told of a cancel.
		const connection = { ...more.connection, alias: { beyondF64: true, falsy: true } };
		const options = {
			connection,
			...(maxFrame === undefined ? {} : { maxFrame }),
			...(more.maxQueued === undefined ? {} : { maxQueued: more.maxQueued }),
		};
		let left = () => {};
		const gone = () => {
			this.#pid = null;
			this.#gone = undefined;
			left();
		};
		let told: number | undefined;
		const wire = new Wire({ ...this.receiver(), gone }, { brief: false, command: true }, (wake) => {
			const started = native.openCommand(translated(order), closeWaitMs, options, wake);
			if ('refused' in started) throw failure(started, order);
			this.#pid = started.pid;
			told = started.stderr;
			return started;
		});
		this.#gone = new Promise((resolve) => {
			left = resolve;
		});
		if (this.#stderr !== null) stream(told, true)?.pipe(this.#stderr);
		this.opened(wire);
	}
}

function redirect(to: IOType | Stream | number): Redirect {
	if (typeof to === 'number' || to === 'inherit' || to === 'ignore' || to === 'pipe') return to;
	if (to === 'overlapped') return 'pipe';
	const { fd } = to as { fd?: unknown };
	if (typeof fd !== 'number') throw new TypeError('stderr must be a stream that has a descriptor');
	return fd;
}
