// A web server on the loopback that ends no answer, and sees which connections are closed.

import { once } from 'node:events';
import http from 'node:http';

/** `/silent` is never answered, `/stall` not to its end, and `/drip` has none. */
export async function site() {
	const closed = new Map();
	const server = http.createServer((request, response) => {
		const { pathname, searchParams } = new URL(request.url, 'http://x');
		const tag = searchParams.get('tag');
		closed.set(tag, new Promise((resolve) => request.socket.on('close', resolve)));
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
		/** Whether the request with this tag has come. */
		asked: (tag) => closed.has(tag),
		/** Its connection is closed. */
		closed: (tag) => closed.get(tag),
		end() {
			server.closeAllConnections();
			server.close();
		},
	};
}
