/**
 * The drop-in for the SDKs' `StdioServerTransport`, and what it has in common with that for their client's.
 */

import type { Message, RequestId } from './mcp.js';
import { openStdio } from './stdio.js';
import type { Receiver, Wire, WireOptions } from './wire.js';
import { wires } from './wires.js';

const SENT = Promise.resolve();

/** What the SDKs say about a message that they send. */
export interface SendOptions {
	/** The request for which it is sent. */
	relatedRequestId?: RequestId;
}

/** Speaks to an SDK as the SDK's own transports do. */
export abstract class WireTransport {
	/** Called when the connection is over, from either side. */
	onclose?: (() => void) | undefined;
	/** Called with what is no JSON, and with what the SDK throws. Nothing of it ends the connection. */
	onerror?: ((error: Error) => void) | undefined;
	// biome-ignore lint/suspicious/noExplicitAny: each SDK types its messages in its own way.
	onmessage?: ((message: any, extra?: any) => void) | undefined;
	readonly sessionId?: string;
	#wire: Wire | undefined;

	/** Opens the wire, and starts to read. */
	protected opened(wire: Wire): void {
		this.#wire = wire;
		wires.set(this, wire);
	}

	protected get wire(): Wire | undefined {
		return this.#wire;
	}

	protected receiver(): Receiver {
		const failed = (error: unknown) =>
			this.onerror?.(error instanceof Error ? error : new Error(String(error)));
		return {
			deliver: (message) => {
				try {
					this.onmessage?.(message);
				} catch (error) {
					failed(error);
				}
			},
			malformed: (_line, error) => failed(error),
			cancel: (requestId, reason) =>
				this.onmessage?.({
					jsonrpc: '2.0',
					method: 'notifications/cancelled',
					params: reason === undefined ? { requestId } : { requestId, reason },
				}),
			writable: () => {},
			closed: () => this.onclose?.(),
		};
	}

	/**
	 * Sends a message, unless its request was cancelled. Resolves when there is room for more. A request that is sent
	 * while a request of the peer's is handled is given up with it.
	 */
	send(message: unknown, options?: SendOptions): Promise<void> {
		if (this.#wire === undefined) return Promise.reject(new Error('Not connected'));
		return this.#wire.send(message as Message, options?.relatedRequestId) ?? SENT;
	}

	/** Ends the connection. What was decided before is still written. */
	async close(): Promise<void> {
		this.#wire?.close();
	}
}

/**
 * A stdio transport for a server of either SDK, with the engine on the wire. A process has one: it takes
 * fd 0 and fd 1 for itself, and what else is written to stdout goes to stderr.
 *
 * [Transports: stdio](https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#stdio)
 */
export class StdioServerTransport extends WireTransport {
	readonly #options: WireOptions | undefined;
	#watched = false;

	/** @param options the engine's settings */
	constructor(options?: WireOptions) {
		super();
		this.#options = options;
	}

	/**
	 * Takes over stdin and stdout, and starts to read.
	 *
	 * @throws if another transport of this process has taken them
	 */
	async start(): Promise<void> {
		this.opened(openStdio(this.receiver(), !this.#watched, this.#options));
	}

	/** The server's handlers are watched, so its SDK need not be told of cancels. */
	static watched(transport: StdioServerTransport): StdioServerTransport {
		transport.#watched = true;
		return transport;
	}
}
