// The benchmarks' server on each Node SDK: `node_server.mjs sdk1|connect|serveStdio|fastmcp [guarded]`.
// fastmcp is guarded by `--import countermand/register`.

import { writeSync } from 'node:fs';
import { current, guard } from 'countermand';
import { z } from 'zod';

const [sdk, guarded] = process.argv.slice(2);
const fd = Number(process.env.BENCH_REPORT_FD);
const report = (event, tag) => writeSync(fd, `${event} ${tag} ${process.hrtime.bigint()}\n`);

// Awaits until it is cancelled.
function wait({ tag }, signal) {
	report('start', tag);
	return new Promise((resolve) => {
		signal.addEventListener('abort', () => {
			report('exit', tag);
			resolve(tag);
		});
	});
}

// Looks at the token in a tight loop.
function poll({ tag }) {
	const token = current();
	report('start', tag);
	while (!token.cancelled);
	report('exit', tag);
	return tag;
}

// Nanoseconds for one read of `cancelled`, with the loop around it.
function cost() {
	const token = current();
	const rounds = Array.from({ length: 7 }, () => {
		const start = process.hrtime.bigint();
		let seen = 0;
		for (let i = 0; i < 3_000_000; i++) if (token.cancelled) seen++;
		return Number(process.hrtime.bigint() - start + BigInt(seen)) / 3_000_000;
	});
	return String(Math.min(...rounds));
}

const tools = {
	echo: [z.object({ text: z.string() }), ({ text }) => text],
	wait: [z.object({ tag: z.string() }), wait],
	poll: [z.object({ tag: z.string() }), poll],
	cost: [z.object({}), cost],
};

function register(server, shape, signalOf) {
	for (const [name, [schema, body]] of Object.entries(tools)) {
		server.registerTool(name, { inputSchema: shape(schema) }, async (input, context) => ({
			content: [{ type: 'text', text: await body(input, signalOf(context)) }],
		}));
	}
	return server;
}

const start = {
	async sdk1() {
		const { McpServer } = await import('@modelcontextprotocol/sdk/server/mcp.js');
		const { StdioServerTransport } = await import('@modelcontextprotocol/sdk/server/stdio.js');
		const server = new McpServer({ name: 'bench', version: '1.0.0' });
		register(
			server,
			(schema) => schema.shape,
			(extra) => extra.signal,
		);
		await (guarded ? guard(server) : server).connect(new StdioServerTransport());
	},
	async connect() {
		const { StdioServerTransport } = await import('@modelcontextprotocol/server/stdio');
		const server = await server2();
		await (guarded ? guard(server) : server).connect(new StdioServerTransport());
	},
	async serveStdio() {
		const { serveStdio } = await import('@modelcontextprotocol/server/stdio');
		serveStdio(guarded ? guard(server2) : server2);
	},
	async fastmcp() {
		const { FastMCP } = await import('fastmcp');
		const server = new FastMCP({ name: 'bench', version: '1.0.0' });
		for (const [name, [parameters, body]] of Object.entries(tools)) {
			server.addTool({ name, parameters, execute: async (input, context) => body(input, context.signal) });
		}
		await server.start({ transportType: 'stdio' });
	},
};

async function server2() {
	const { McpServer } = await import('@modelcontextprotocol/server');
	const server = new McpServer({ name: 'bench', version: '1.0.0' });
	return register(
		server,
		(schema) => schema,
		(context) => context.mcpReq.signal,
	);
}

await start[sdk]();
