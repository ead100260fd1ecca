// The same for `serveStdio`, which makes a server from a factory for each connection.

import { McpServer } from '@modelcontextprotocol/server';
import { serveStdio } from '@modelcontextprotocol/server/stdio';
import { current, guard } from 'countermand';
import { z } from 'zod';

function server() {
	const server = new McpServer({ name: 'fetcher', version: '1.0.0' });
	server.registerTool('fetch', { inputSchema: z.object({ url: z.string() }) }, async ({ url }) => {
		const response = await fetch(url, { signal: current().signal });
		return { content: [{ type: 'text', text: await response.text() }] };
	});
	return server;
}

serveStdio(guard(server));
