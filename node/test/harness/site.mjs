// A web server on the loopback that ends no answer, and sees which connections are closed.

import { once } from 'node:events';
import http from 'node:http';
import { until } from './until.mjs';

/** `/silent` is never answered, `/stall` not to its end, and `/drip` has none. */
export async function site() {
	const closed = new Map();
	const server = http.createServer((request, response) => {
		const { pathname, searchParams } = new URL(request.url, 'http://x');
		const tag = searchParams.get('tag');
		closed.set(tag, false);
		request.socket.on('close', () => closed.set(tag, true));
		if (pathname === '/silent') return;
		response.write('drop');
		if (pathname === '/stall') return;
		const drip = setInterval(() => response.write('drop'), 5);
		request.socket.on('close', () => clearInterval(drip));
	});
	server.listen(0, '127.0.0.1');
	await once(server, 'listening');
	return {
		url: (path, tag) => `http://127.0.0.1:${server.address().port}/${path}?tag=${encodeURIComponent(tag)}`,
		/** The request with this tag has come. */
		asked: (tag) => until(() => closed.has(tag), `the request ${tag}`),
		/** Its connection is closed. */
		closed: (tag) => until(() => closed.get(tag), `the end of the connection ${tag}`),
		end() {
			server.closeAllConnections();
			server.close();
		},
	};
}
