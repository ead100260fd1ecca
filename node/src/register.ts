/**
 * `node --require countermand/register server.js`: puts the engine under the stdio transport that the
 * server's framework builds for itself. It changes what that one transport reads and writes, and no SDK.
 */

import { isMainThread } from 'node:worker_threads';
import { interpose } from './streams.js';

// A worker inherits the option, but not the stdin.
if (isMainThread) interpose(true);
