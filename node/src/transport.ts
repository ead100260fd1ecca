/**
 * The drop-in for the SDKs' `StdioServerTransport`.
 */

import type { Message } from './mcp.js';
import { Wire, type WireOptions } from './wire.js';

const SENT = Promise.resolve();

/**
 * A stdio transport for a server of either SDK, with the engine on the wire. A process has one: it takes
 * fd 0 and fd 1 for itself, and what else is written to stdout goes to stderr.
 *
 * [Transports: stdio](https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#stdio)
 */
export class StdioServerTransport {
	/** Called when the connection is over, from either side. */
	onclose?: (() => void) | undefined;
	/** Called with what is no JSON, and with what the SDK throws. Nothing of it ends the connection. */
	onerror?: ((error: Error) => void) | undefined;
	// biome-ignore lint/suspicious/noExplicitAny: each SDK types its messages in its own way.
	onmessage?: ((message: any, extra?: any) => void) | undefined;
	readonly sessionId?: string;
	#wire: Wire | undefined;
	readonly #options: WireOptions | undefined;
	#watched = false;

	/** @param options the engine's settings */
	constructor(options?: WireOptions) {
		this.#options = options;
	}

	/**
	 * Takes over stdin and stdout, and starts to read.
	 *
	 * @throws if another transport of this process has taken them
	 */
	async start(): Promise<void> {
		const failed = (error: unknown) =>
			this.onerror?.(error instanceof Error ? error : new Error(String(error)));
		this.#wire = new Wire(
			{
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
			},
			!this.#watched,
			this.#options,
		);
	}

	/** Sends a message, unless its request was cancelled. Resolves when there is room for more. */
	send(message: unknown): Promise<void> {
		if (this.#wire === undefined) return Promise.reject(new Error('The transport was not started'));
		return this.#wire.send(message as Message) ?? SENT;
	}

	/** Ends the connection. What was decided before is still written. */
	async close(): Promise<void> {
		this.#wire?.close();
	}

	/** The server's handlers are watched, so its SDK need not be told of cancels. */
	static watched(transport: StdioServerTransport): StdioServerTransport {
		transport.#watched = true;
		return transport;
	}
}
