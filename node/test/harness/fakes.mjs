// The server that does what none should, under clients of both SDKs and the engine's transport.

import assert from 'node:assert/strict';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { Client as V2 } from '@modelcontextprotocol/client';
import { Client as V1 } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport, stats } from 'countermand';
import { alive } from './processes.mjs';
import { until } from './until.mjs';

export const CLIENTS = { v1: V1, v2: V2 };
export const FAKE = fileURLToPath(new URL('fake.mjs', import.meta.url));

const folder = mkdtempSync(path.join(tmpdir(), 'fakes-'));
let count = 0;
const open = new Set();
/** What Node warned of, in this process. */
export const warnings = [];
process.on('warning', (warning) => warnings.push(String(warning)));

export class Fake {
	errors = [];
	log = path.join(folder, `${count++}.log`);

	constructor(sdk, { mute = false, wrap = (command, args) => ({ command, args }), ...options } = {}) {
		const args = [FAKE, this.log, ...(mute ? ['mute'] : [])];
		this.transport = new StdioClientTransport({ ...wrap(process.execPath, args), ...options });
		this.client = new CLIENTS[sdk]({ name: 'test', version: '1' });
		this.client.onerror = (error) => this.errors.push(error);
		open.add(this);
	}

	/** One that is connected. */
	static async open(sdk, options) {
		const fake = new Fake(sdk, options);
		await fake.client.connect(fake.transport);
		fake.pid = fake.transport.pid;
		return fake;
	}

	/** Calls a tool through the SDK. */
	async tool(name, options) {
		const { content } = await this.client.callTool(
			...(this.client instanceof V1 ? [{ name }, undefined, options] : [{ name }, options]),
		);
		return content[0].text;
	}

	/** The messages that it has read. */
	get heard() {
		if (!existsSync(this.log)) return [];
		const lines = readFileSync(this.log, 'utf8').split('\n');
		return lines.slice(0, -1).map((line) => JSON.parse(line));
	}

	/** The ids whose cancel it has read. */
	get cancels() {
		return this.heard
			.filter(({ method }) => method === 'notifications/cancelled')
			.map(({ params }) => params.requestId);
	}

	/** The ids of the calls of this tool that it has read. */
	calls(name) {
		return this.heard.filter(({ params }) => params?.name === name).map(({ id }) => id);
	}

	/** It has read a message like this. */
	async hears(wanted, what) {
		await until(() => this.heard.some(wanted), what);
	}

	get stats() {
		return stats(this.transport);
	}

	/** All that was said before is done with, nobody complained, and the next call works. */
	async well() {
		assert.equal(await this.tool('echo'), 'echo');
		assert.deepEqual(this.errors, []);
		assert.deepEqual(warnings, []);
	}

	/** Closes it, after which nothing of it is left. */
	async close() {
		await this.client.close();
		// The SDK asks for no more where the connection is over already.
		await this.transport.close();
		assert.equal(this.transport.pid, null);
		assert.deepEqual(alive([this.pid]), []);
	}

	/** Ends whatever a test left behind. */
	static async end() {
		await Promise.all([...open].map(({ transport }) => transport.close()));
		rmSync(folder, { recursive: true, force: true });
	}
}
