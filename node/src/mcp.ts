/**
 * The parts of the MCP SDKs that the engine touches, typed by their structure: no SDK is imported, and
 * any version that has these parts will do.
 */

export type RequestId = string | number;

/** Any JSON-RPC message. */
export interface Message {
	id?: RequestId | null;
	method?: string;
	[key: string]: unknown;
}

/** What a request handler is given beside the request: `extra` in SDK 1.x, `ctx` in 2.x. */
export interface HandlerContext {
	/** 1.x */
	requestId?: RequestId;
	signal?: AbortSignal;
	/** 2.x */
	mcpReq?: { id: RequestId; signal?: AbortSignal };
}

export type RequestHandler = (request: unknown, context: HandlerContext) => unknown;

/** A `Server` of either SDK, as far as it is touched. */
export interface LowLevelServer {
	_requestHandlers: Map<string, RequestHandler>;
	/** Which the SDK aborts when it is told of a cancel, after which it does not answer. */
	_requestHandlerAbortControllers?: Map<RequestId, AbortController>;
	fallbackRequestHandler?: RequestHandler | undefined;
}

/** A `Server` or an `McpServer` of either SDK. */
export interface Connectable {
	// biome-ignore lint/suspicious/noExplicitAny: each SDK has its own type of transport.
	connect(transport: any): Promise<void>;
	server?: unknown;
}

export function isObject(value: unknown): value is Record<string, unknown> {
	return typeof value === 'object' && value !== null;
}
