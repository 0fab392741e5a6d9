// Appended to Package.swift by Tests/Fuzz/run, in a package of its own: only what is fuzzed, with libFuzzer's and the address sanitizer's
// instruments in it. Of what needs much else, the files that read what comes from outside.
import Foundation

do {
    let modules: Set<String> = [
        "CLinux", "CTOML", "CDBus", "CALSA", "COpus", "CSpeexDSP", "COgg", "CBluetooth", "CEvdev", "CUdev", "CGnuTLS",
        "CSodium", "CNgtcp2", "CPulse", "CSQLite", "CNats", "SQLite", "NATS", "RelayStore", "RelayCluster",
        "Vocabulary", "MonotonicTime", "Reactor",
        "Files", "Cryptography", "Settings", "Logs",
        "PlainText", "Terminal", "PushToTalkCore", "SFrame", "RelayProtocol", "QUIC", "DBus", "LinuxInput", "BlueZ",
        "Calls", "PTTBus", "Audio", "Nearby", "WebSockets", "WebSocketClient", "RelayClient", "Recordings",
        "Accessories",
        "AccessorySetup",
        "ChannelService", "Headsets", "RelayServer", "Bridge", "SpokenPrompts", "TestSupport",
    ]
    func part(_ name: String, _ files: [String], _ dependencies: [Target.Dependency]) -> Target {
        let all = try? FileManager.default.contentsOfDirectory(atPath: "\(Context.packageDirectory)/Sources/\(name)")
        return .target(
            name: name, dependencies: dependencies, path: "Sources/\(name)",
            exclude: (all ?? []).filter { name in !files.contains { $0.hasPrefix(name) } }.sorted(), sources: files,
            swiftSettings: swiftSettings)
    }
    let packages = ["swift-collections", "swift-log", "swift-protobuf", "swift-nio", "swift-nio-ssl"]
    package.dependencies.removeAll { dependency in
        guard case .sourceControl(_, let location, _) = dependency.kind else { return true }
        return !packages.contains { location.hasSuffix($0) }
    }
    package.targets.removeAll { !modules.contains($0.name) }
    package.targets += [
        part(
            "pttd",
            [
                "Configuration.swift", "Configuration+Audio.swift", "Configuration+Channels.swift",
                "Configuration+Recordings.swift", "Configuration+Nearby.swift", "Configuration+Network.swift",
            ],
            [
                "Accessories", "Audio", "BlueZ", "Bridge", "ChannelService", "Headsets", "PushToTalkCore", "Recordings",
                "RelayClient", "RelayProtocol", "Settings", "SpokenPrompts", "Vocabulary", "WebSockets",
            ]),
        part(
            "pttrelay",
            [
                "API/APIBody.swift", "API/APIResource.swift", "AdministrationMessages.swift", "APISettings.swift",
                "ClusterSettings.swift", "FloorSettings.swift", "ListenAddress.swift", "PushSettings.swift",
                "RelaySettings.swift",
                "StartNeeds.swift", "WebSettings.swift",
            ],
            [
                "Cryptography", "Logs", "NATS", "QUIC", "RelayCluster", "RelayHTTP", "RelayProtocol", "RelayServer",
                "RelayStore", "RelayWeb", "Settings",
            ]),
        part("RelayWeb", ["WebEndpointConfiguration.swift"], ["Cryptography", "RelayServer"]),
        part(
            "RelayHTTP",
            [
                "APIMessages.swift", "APIProblem.swift", "OperatorToken.swift", "PlainHTTPConfiguration.swift",
                "PushEndpointConfiguration.swift",
                "PushHead.swift", "PushRejection.swift",
            ],
            ["Cryptography", "RelayProtocol", "Vocabulary"]),
    ]
    for target in package.targets where target.type == .regular {
        let isC = target.name.hasPrefix("C") && modules.contains(target.name) && target.path != nil
        if isC {
            target.cSettings = (target.cSettings ?? []) + [.unsafeFlags(["-fsanitize=address,fuzzer-no-link"])]
            target.cxxSettings = (target.cxxSettings ?? []) + [.unsafeFlags(["-fsanitize=address,fuzzer-no-link"])]
        } else {
            // What is optimised finds ten times as much in the same time. Overflows and indices are checked all the same.
            target.swiftSettings =
                (target.swiftSettings ?? []) + [.unsafeFlags(["-sanitize=fuzzer,address", "-enable-testing", "-O"])]
        }
    }
    let names = package.targets.filter { $0.type == .regular || $0.name == "CDBus" }.map(\.name)
    package.targets += [
        .systemLibrary(name: "CLibFuzzer", path: "Tests/Fuzz/CLibFuzzer"),
        .executableTarget(
            name: "fuzz", dependencies: ["CLibFuzzer", log] + names.map { .byName(name: $0) },
            path: "Tests/Fuzz/Fuzz", swiftSettings: swiftSettings + [.unsafeFlags(["-sanitize=address"])],
            linkerSettings: [.unsafeFlags(["-sanitize=address"])]),
    ]
    package.products = [.executable(name: "fuzz", targets: ["fuzz"])]
}
