// Whatever takes an AbortSignal stops with the request: timers, requests, streams, processes.

import { execFile } from 'node:child_process';
import { createReadStream, createWriteStream } from 'node:fs';
import { pipeline } from 'node:stream/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { createGzip } from 'node:zlib';
import { McpServer } from '@modelcontextprotocol/server';
import { StdioServerTransport } from '@modelcontextprotocol/server/stdio';
import { current, guard } from 'countermand';
import { z } from 'zod';

const server = new McpServer({ name: 'libraries', version: '1.0.0' });
const run = promisify(execFile);

function tool(name, fields, work) {
	server.registerTool(name, { inputSchema: z.object(fields) }, async (args) => {
		const text = await work(args, { signal: current().signal });
		return { content: [{ type: 'text', text }] };
	});
}

tool('wait', { seconds: z.number() }, async ({ seconds }, options) => {
	await sleep(seconds * 1000, undefined, options);
	return 'waited';
});
tool('fetch', { url: z.string() }, async ({ url }, options) => {
	const response = await fetch(url, options);
	return response.text();
});
tool('compress', { path: z.string() }, async ({ path }, options) => {
	await pipeline(createReadStream(path), createGzip(), createWriteStream(`${path}.gz`), options);
	return `${path}.gz`;
});
tool('disk_usage', { path: z.string() }, async ({ path }, options) => {
	const { stdout } = await run('du', ['-sk', '--', path], options);
	return stdout;
});

await guard(server).connect(new StdioServerTransport());
