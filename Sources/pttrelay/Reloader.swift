// SIGHUP: reloads the configuration, and applies the settings that can change while the relay runs.
import Logging
import RelayHTTP
import RelayWeb
import ServiceLifecycle

/// Reads the configuration again.
struct Reloader: Sendable {
    /// What the relay was started with.
    let started: RelaySettings
    /// Channels of the command line.
    let channels: [String]
    /// `--queue`.
    let allHaveQueues: Bool
    let registrar: Registrar
    let pushes: PushEndpoint?
    let web: WebEndpoint?
    var api: APIEndpoint?
    let ending: CurrentShutdownSettings
    let logger: Logger
    let read: @Sendable () throws -> RelaySettings

    /// Takes over what can change; a configuration with a mistake changes nothing.
    func reload() async {
        let settings: RelaySettings
        let certificate: PushEndpoint.Certificate?
        let webCertificate: WebEndpoint.Certificate?
        let apiToken: OperatorToken?
        let changes: [String]
        do {
            settings = try read()
            certificate = try await self.certificate(settings)
            webCertificate = try await self.webCertificate(settings)
            // Without [api] nobody has one any more, though the port is open until the relay is started again.
            apiToken =
                api == nil
                ? nil : try await registrar.withState { try settings.api?.token($0, logger: $1) ?? OperatorToken() }
            changes = try await registrar.reload(
                channels: channels + settings.channels,
                floors: Floors(
                    rules: settings.floorRules, retentions: settings.retentions, allHaveQueues: allHaveQueues))
        } catch {
            logger.error("the configuration is invalid and was not applied", metadata: ["why": "\(error)"])
            return
        }
        for change in changes { logger.notice("\(change)") }
        ending.set(settings.ending)
        if let pushes {
            if let certificate { pushes.setCertificate(certificate) }
            // Without [push] nobody may push any more, though the port is open until the relay is started again.
            let clients = settings.push?.clients ?? []
            pushes.setClients(clients)
            logger.info("push clients reloaded", metadata: ["clients": "\(clients.count)"])
        }
        if let api, let apiToken { api.setToken(apiToken) }
        if let web, let webCertificate { web.setCertificate(webCertificate) }
        for name in Self.needRestart(started, settings) {
            logger.warning("a change of \(name) takes effect after a restart of the relay")
        }
        logger.notice("configuration reloaded")
    }

    /// The server's certificate of the push endpoint, read again: it may have been renewed, whatever its file is called.
    private func certificate(_ settings: RelaySettings) async throws -> PushEndpoint.Certificate? {
        guard let pushes, let push = settings.push else { return nil }
        let (certificate, key) = try await registrar.withState { try push.certificate($0, logger: $1) }
        return try pushes.certificate(certificate, privateKeyPEM: key)
    }

    /// The same of the web endpoint.
    private func webCertificate(_ settings: RelaySettings) async throws -> WebEndpoint.Certificate? {
        guard web != nil, let own = settings.web,
            let (certificate, key) = try await registrar.withState({ try own.certificate($0, logger: $1) })
        else { return nil }
        return try WebEndpoint.certificate(certificate, privateKeyPEM: key)
    }

    /// The changed settings that need a restart, as named in the configuration.
    static func needRestart(_ old: RelaySettings, _ new: RelaySettings) -> [String] {
        var names: [String] = []
        if old.listen != new.listen { names.append("[relay] listen") }
        if old.host != new.host { names.append("[relay] host") }
        if old.state != new.state { names.append("[relay] state") }
        if old.timers != new.timers { names.append("the time limits in [relay]") }
        if old.logFormat != new.logFormat { names.append("[relay] log-format") }
        if old.workers != new.workers { names.append("[relay] workers") }
        if old.helpers != new.helpers { names.append("[relay] helpers") }
        if old.limits != new.limits { names.append("[limits]") }
        if old.operatorListen != new.operatorListen { names.append("[operator]") }
        if old.api?.listen != new.api?.listen { names.append("[api]") }
        if old.cluster.map(\.untilRestart) != new.cluster.map(\.untilRestart) { names.append("[cluster]") }
        if old.web.map(\.untilRestart) != new.web.map(\.untilRestart) { names.append("[web]") }
        if (old.push == nil) != (new.push == nil) {
            names.append("[push]")
        } else if old.push?.listen != new.push?.listen {
            names.append("[push] listen")
        }
        return names
    }
}

/// Waits for SIGHUP, in the form of the service group.
struct ReloadService: Service {
    let hangUps: AsyncStream<Void>
    let reloader: Reloader

    func run() async {
        for await _ in hangUps.cancelOnGracefulShutdown() { await reloader.reload() }
    }
}
