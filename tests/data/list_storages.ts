// Lists storages with the types that openapi-typescript has generated. Argument: the URL of the
// server.
import createClient from "openapi-fetch";
import type { paths } from "./schema.d.ts";

declare const process: { argv: string[] };

const client = createClient<paths>({ baseUrl: process.argv[2] });
const { data, error } = await client.GET("/api/v1/storages", { params: { query: { limit: 10 } } });
if (error) throw new Error(error.detail);
for (const storage of data.items) console.log(storage.name, storage.state);
