/**
 * Streams in place of stdin and stdout, for whoever builds the SDK's stdio transport itself: `serveStdio`,
 * and frameworks under `countermand/register`.
 *
 * They are handed out once, to the constructor that takes stdin and then stdout: what the SDKs'
 * `StdioServerTransport` does. Everybody else sees the process's own streams.
 */

import { EventEmitter } from 'node:events';
import type { Message } from './mcp.js';
import { openStdio } from './stdio.js';
import type { Wire, WireOptions } from './wire.js';

/** Reads from the wire once somebody listens. */
class WireInput extends EventEmitter {
	readonly fd = 0;
	readableEnded = false;
	destroyed = false;
	wire: Wire | undefined;

	constructor(
		private readonly output: WireOutput,
		private readonly falsyIds: boolean,
		private readonly options: WireOptions | undefined,
	) {
		super();
	}

	override on(event: string, listener: (...args: never[]) => void): this {
		super.on(event, listener as (...args: unknown[]) => void);
		if (event === 'data') this.resume();
		return this;
	}

	resume(): this {
		if (this.wire !== undefined) return this;
		const line = (text: string) => this.emit('data', Buffer.from(`${text}\n`));
		this.wire = openStdio(
			{
				deliver: (_message: Message, text: string) => line(text),
				malformed: (text) => line(text),
				cancel: (requestId, reason) => {
					const params = reason === undefined ? { requestId } : { requestId, reason };
					line(JSON.stringify({ jsonrpc: '2.0', method: 'notifications/cancelled', params }));
				},
				writable: () => this.output.emit('drain'),
				closed: () => {
					this.readableEnded = true;
					this.emit('end');
					this.destroyed = true;
					this.emit('close');
				},
			},
			this.falsyIds,
			this.options,
		);
		this.output.wire = this.wire;
		return this;
	}

	/** With no one listening, the SDK has closed its transport; else the wire reads on: a cancel must not wait. */
	pause(): this {
		if (this.listenerCount('data') === 0) this.wire?.close();
		return this;
	}
}

/** Writes to the wire what the SDK writes, which is whole lines. */
class WireOutput extends EventEmitter {
	readonly fd = 1;
	wire: Wire | undefined;
	#partial = '';

	/** False where the peer reads more slowly than we write: `drain` follows. */
	write(chunk: string | Uint8Array): boolean {
		const text = this.#partial + (typeof chunk === 'string' ? chunk : Buffer.from(chunk).toString());
		const end = text.lastIndexOf('\n') + 1;
		this.#partial = text.slice(end);
		let room = true;
		for (let from = 0; from < end; ) {
			const next = text.indexOf('\n', from) + 1;
			room = this.wire?.sendLine(text.slice(from, next)) === undefined;
			from = next;
		}
		return room;
	}
}

let streams: { input: WireInput; output: WireOutput } | undefined;

/** Whether this is a stream of ours. */
export function isInterposed(stream: unknown): boolean {
	return stream instanceof WireInput;
}

/**
 * Readies the streams; done again, it does nothing.
 *
 * @param falsyIds as the wire has it
 */
export function interpose(falsyIds: boolean, options?: WireOptions): void {
	if (streams !== undefined) return;
	const output = new WireOutput();
	const input = new WireInput(output, falsyIds, options);
	streams = { input, output };
	const own = {
		stdin: Object.getOwnPropertyDescriptor(process, 'stdin') as PropertyDescriptor,
		stdout: Object.getOwnPropertyDescriptor(process, 'stdout') as PropertyDescriptor,
	};
	let taker: string | undefined;
	Object.defineProperty(process, 'stdin', {
		...own.stdin,
		get() {
			taker = constructing();
			return taker === undefined ? own.stdin.get?.call(process) : input;
		},
	});
	Object.defineProperty(process, 'stdout', {
		...own.stdout,
		get() {
			if (taker === undefined || taker !== constructing()) return own.stdout.get?.call(process);
			Object.defineProperties(process, own);
			return output;
		},
	});
}

/** Names the constructor that is asking, if one is. */
function constructing(): string | undefined {
	const { prepareStackTrace, stackTraceLimit } = Error;
	try {
		Error.stackTraceLimit = 3;
		Error.prepareStackTrace = (_error, sites) => sites;
		const sites = new Error().stack as unknown as NodeJS.CallSite[];
		// This function, the getter, who asked.
		const site = sites[2];
		return site?.isConstructor() ? `${site.getFileName()}#${site.getFunctionName()}` : undefined;
	} finally {
		Error.prepareStackTrace = prepareStackTrace;
		Error.stackTraceLimit = stackTraceLimit;
	}
}
