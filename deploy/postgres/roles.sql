-- The four roles of a ledger that a team shares on one Postgres, and what each of them may do.
--
--     ledgerctl db roles | psql --dbname acp_ledger
--
-- Run it as a superuser, or as the database's owner with CREATEROLE, in the database of the ledger, before or after the
-- ledger is made there, and as often as you like. Other names, and another schema than public: psql -v schema=ledger -v owner=… -v writer=… -v reader=… -v auditor=…
--
--     owner    has the tables; for `ledgerctl db create` and `ledgerctl db upgrade`, and for nothing else
--     writer   INSERT and SELECT on tables, SELECT on views; for acp-ledgerd
--     auditor  SELECT on tables and views; for `ledgerctl verify` and for pg_dump
--     reader   SELECT on views alone, which show no line and no message; for dashboards and SQL
--
-- The roles may log in and have no password: give them one (\password acp_ledger_writer), or let people's own roles be
-- members (GRANT acp_ledger_reader TO mia), or let pg_hba.conf decide.
--
-- Views read with the rights of their owner (security_invoker is off), which is why a reader needs none on tables.

\set ON_ERROR_STOP on
\set QUIET on
\if :{?schema} \else \set schema public \endif
\if :{?owner} \else \set owner acp_ledger_owner \endif
\if :{?writer} \else \set writer acp_ledger_writer \endif
\if :{?reader} \else \set reader acp_ledger_reader \endif
\if :{?auditor} \else \set auditor acp_ledger_auditor \endif
SELECT current_database() AS database \gset

BEGIN;

SELECT format('CREATE ROLE %I LOGIN', name)
  FROM unnest(ARRAY[:'owner', :'writer', :'reader', :'auditor']) AS name
 WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = name)
\gexec

-- Only who is a member of a role may give it anything; a superuser is one of each.
SELECT format('GRANT %I TO CURRENT_USER', :'owner')
 WHERE NOT pg_has_role(:'owner', 'USAGE')
\gexec

-- Nobody else comes in, and nobody makes tables, temporary ones neither.
REVOKE ALL ON DATABASE :"database" FROM PUBLIC;
GRANT CONNECT ON DATABASE :"database" TO :"owner", :"writer", :"reader", :"auditor";
CREATE SCHEMA IF NOT EXISTS :"schema";
ALTER SCHEMA :"schema" OWNER TO :"owner";
REVOKE ALL ON SCHEMA :"schema" FROM PUBLIC, :"writer", :"reader", :"auditor";
GRANT USAGE ON SCHEMA :"schema" TO :"writer", :"reader", :"auditor";
ALTER DATABASE :"database" SET search_path = :"schema";

-- A ledger that is there already becomes the owner's, whoever made it.
SELECT format('ALTER TABLE %s OWNER TO %I', c.oid::regclass, :'owner')
  FROM pg_class c
 WHERE c.relnamespace = quote_ident(:'schema')::regnamespace AND c.relkind IN ('r', 'p', 'v')
   AND c.relowner <> quote_ident(:'owner')::regrole
\gexec
SELECT format('ALTER FUNCTION %s OWNER TO %I', p.oid::regprocedure, :'owner')
  FROM pg_proc p
 WHERE p.pronamespace = quote_ident(:'schema')::regnamespace AND p.prokind = 'f' AND p.proowner <> quote_ident(:'owner')::regrole
\gexec

-- The rights stand in a function of the owner's, for `ledgerctl db create` and `db upgrade` make tables and views, and
-- call it when they have: a view that was made anew would otherwise be nobody's to read.
SELECT format($make$
CREATE OR REPLACE FUNCTION %1$I.acp_ledger_rights() RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog AS $body$
DECLARE
    relation record;
BEGIN
    FOR relation IN
        SELECT c.oid::regclass AS name, c.relkind, c.relname
          FROM pg_class c
         WHERE c.relnamespace = %2$L::regnamespace AND c.relkind IN ('r', 'p', 'v')
    LOOP
        EXECUTE format('REVOKE ALL ON %%s FROM PUBLIC, %3$I, %4$I, %5$I', relation.name);
        EXECUTE format('GRANT SELECT ON %%s TO %3$I, %5$I', relation.name);
        IF relation.relkind = 'v' THEN
            EXECUTE format('GRANT SELECT ON %%s TO %4$I', relation.name);
        ELSIF relation.relname NOT IN ('alembic_version', 'ledger') THEN
            EXECUTE format('GRANT INSERT ON %%s TO %3$I', relation.name);
        END IF;
    END LOOP;
END
$body$
$make$, :'schema', quote_ident(:'schema'), :'writer', :'reader', :'auditor')
\gexec
ALTER FUNCTION :"schema".acp_ledger_rights() OWNER TO :"owner";
REVOKE ALL ON FUNCTION :"schema".acp_ledger_rights() FROM PUBLIC;
SELECT :"schema".acp_ledger_rights() \g /dev/null

COMMIT;
