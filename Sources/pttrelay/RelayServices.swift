// The services of a relay's program, and the order in which they stop.
import RelayHTTP
import ServiceLifecycle

/// The services of a relay. A service group stops them in reverse order. The relay stops first: it drains while health,
/// metrics and the operator's commands are still served. The push endpoint follows, and the API, the page and the
/// commands are last.
struct RelayServices {
    /// Takes commands; see `AdministrationService`.
    let administration: any Service
    /// The operator's page.
    let page: (any Service)?
    /// The API.
    let api: (any Service)?
    /// Takes pushes: turned away by a relay that goes down.
    let pushes: (any Service)?
    /// Takes links over TLS: it goes after the relay, which closes them.
    let web: (any Service)?
    /// Reads the configuration again.
    let reload: any Service
    /// See `RelayService`.
    let relay: any Service

    /// In the order that they are started.
    var all: [ServiceGroupConfiguration.ServiceConfiguration] {
        [administration, page, api, pushes, web, reload].compactMap(\.self).map { .init(service: $0) }
            + [.init(service: relay, successTerminationBehavior: .gracefullyShutdownGroup)]
    }
}

/// The socket for commands, and who carries them out, in the form of the service group.
struct AdministrationService: Service {
    let administration: AdministrationServer
    let registrar: Registrar

    func run() async {
        // Cancelled or told to end: either way it does.
        try? await gracefulShutdown()
        await administration.stop()
        await registrar.disconnect()
    }
}
