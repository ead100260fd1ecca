// Cleanup that awaits although its request was cancelled, for half a second and not longer.

import { createWriteStream } from 'node:fs';
import { mkdtemp, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { pipeline } from 'node:stream/promises';
import { McpServer } from '@modelcontextprotocol/server';
import { StdioServerTransport } from '@modelcontextprotocol/server/stdio';
import { current, guard } from 'countermand';
import { z } from 'zod';

const server = new McpServer({ name: 'downloads', version: '1.0.0' });

server.registerTool('weigh', { inputSchema: z.object({ url: z.string() }) }, async ({ url }) => {
	const token = current();
	const { signal } = token;
	const folder = await mkdtemp(path.join(tmpdir(), 'weigh-'));
	try {
		const file = path.join(folder, 'download');
		const response = await fetch(url, { signal });
		await pipeline(response.body, createWriteStream(file), { signal });
		const { size } = await stat(file);
		return { content: [{ type: 'text', text: `${size} bytes` }] };
	} finally {
		// In here `current()` is the shield's own token: `fetch(bye, { signal: current().signal })` would go out.
		await token.shield(500, () => rm(folder, { recursive: true }));
	}
});

await guard(server).connect(new StdioServerTransport());
