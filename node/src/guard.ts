/**
 * `guard`: puts one server object, or those that a factory makes, under the engine.
 *
 * It stands at two seams of that object: `connect`, where a stdio transport of the SDK's is replaced by
 * ours, and the table of request handlers. `guardEvery` does that for servers that a framework makes. A handler that it gives out ties the SDK's own controller for
 * the request to the request's token, and tells when the handler has really exited.
 */

import { holder, within } from './context.js';
import {
	type Connectable,
	type HandlerContext,
	isObject,
	type LowLevelServer,
	type RequestHandler,
} from './mcp.js';
import { interpose, isInterposed } from './streams.js';
import { RequestToken } from './token.js';
import { StdioServerTransport } from './transport.js';
import type { WireOptions } from './wire.js';

const guarded = new WeakSet<object>();

/**
 * Puts a `Server` or `McpServer` of `@modelcontextprotocol/sdk` 1.x or `@modelcontextprotocol/server` 2.x
 * under the engine, before it is connected. Returns the same server.
 *
 * Connected to a stdio transport, the SDK's or ours, the engine reads and writes in its place. Connected
 * to any other, the server is what it was.
 */
export function guard<S extends Connectable>(server: S, options?: WireOptions): S;
/**
 * Puts the servers that a factory makes for `serveStdio` under the engine:
 * `serveStdio(guard(() => new McpServer(…)))`.
 */
export function guard<F extends (...args: never[]) => Connectable | Promise<Connectable>>(
	factory: F,
	options?: WireOptions,
): F;
export function guard(
	target: Connectable | ((...args: never[]) => Connectable | Promise<Connectable>),
	options?: WireOptions,
): unknown {
	if (typeof target !== 'function') return guardServer(target, options);
	interpose(false, options);
	const guarded = (product: Connectable) => guardServer(product, options);
	return (...args: never[]) => {
		const product = target(...args);
		return product instanceof Promise ? product.then(guarded) : guarded(product);
	};
}

function guardServer<S extends Connectable>(server: S, options?: WireOptions): S {
	const inner = isObject(server.server) ? server.server : server;
	if (!hasHandlers(inner)) throw new TypeError('guard() takes a Server or an McpServer, or a factory of one');
	if (guarded.has(inner)) return server;
	guarded.add(inner);
	watchHandlers(inner);
	const connectable = inner as unknown as Connectable;
	// An McpServer connects its Server: the one funnel.
	const connect = connectable.connect;
	connectable.connect = (transport: unknown) => connect.call(connectable, onWire(transport, options));
	return server;
}

/** Puts every server that has this prototype, and is connected to a stdio transport, under the engine. */
export function guardEvery(prototype: Connectable): void {
	const connect = prototype.connect;
	prototype.connect = function (this: Connectable, transport: unknown) {
		if (!isStdio(transport) || !hasHandlers(this) || guarded.has(this)) return connect.call(this, transport);
		guarded.add(this);
		watchHandlers(this);
		return connect.call(this, onWire(transport));
	};
}

function hasHandlers(value: object): value is LowLevelServer {
	return (value as LowLevelServer)._requestHandlers instanceof Map && 'connect' in value;
}

/** Our transport in place of one that would read this process's stdin itself. */
function onWire(transport: unknown, options?: WireOptions): unknown {
	if (transport instanceof StdioServerTransport) return StdioServerTransport.watched(transport);
	if (!isStdio(transport)) return transport;
	const ours = StdioServerTransport.watched(new StdioServerTransport(options));
	ours.onclose = transport.onclose;
	ours.onerror = transport.onerror;
	ours.onmessage = transport.onmessage;
	return ours;
}

function isStdio(transport: unknown): transport is StdioServerTransport {
	if (!isObject(transport)) return false;
	const { _stdin: stdin, _stdout: stdout } = transport;
	if (!isObject(stdin) || !isObject(stdout)) return false;
	return isInterposed(stdin) || (stdin.fd === 0 && stdout.fd === 1);
}

function watchHandlers(server: LowLevelServer): void {
	const handlers = server._requestHandlers;
	const watched = new WeakMap<RequestHandler, RequestHandler>();
	const watch = (handler: RequestHandler | undefined): RequestHandler | undefined => {
		if (handler === undefined) return undefined;
		let found = watched.get(handler);
		if (found === undefined) {
			found = (request, context) => run(server, handler, request, context);
			watched.set(handler, found);
		}
		return found;
	};
	const get = handlers.get.bind(handlers);
	Object.defineProperty(handlers, 'get', {
		configurable: true,
		value: (method: string) => watch(get(method)),
	});
	let fallback = server.fallbackRequestHandler;
	Object.defineProperty(server, 'fallbackRequestHandler', {
		configurable: true,
		enumerable: true,
		get: () => watch(fallback),
		set: (handler: RequestHandler | undefined) => {
			fallback = handler;
		},
	});
}

function run(
	server: LowLevelServer,
	handler: RequestHandler,
	request: unknown,
	context: HandlerContext,
): unknown {
	const node = holder();
	const found = node instanceof RequestToken ? node : node?.root;
	// Nothing that came over the wire: another transport's.
	if (found === undefined) return handler(request, context);
	const id = context.mcpReq?.id ?? context.requestId;
	if (id === undefined) return handler(request, context);
	// An SDK that queues messages may run one in the context of another.
	const strayed = found.innerId !== id;
	const token = strayed ? found.home.find(id) : found;
	if (token === undefined) return handler(request, context);
	// Cancelled before its handler could start: it must not.
	token.checkpoint();
	const controller = server._requestHandlerAbortControllers?.get(id);
	if (controller !== undefined) token.adopt(controller);
	token.result = strayed ? within(token, handler, request, context) : handler(request, context);
	return token.result;
}
