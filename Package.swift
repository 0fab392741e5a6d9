// swift-tools-version: 6.2
// The modules (docs/architecture.md): a target depends only on targets of lower layers.
import PackageDescription

let swiftSettings: [SwiftSetting] = [
    .swiftLanguageMode(.v6),
    .enableUpcomingFeature("ExistentialAny"),
    .enableUpcomingFeature("MemberImportVisibility"),
]

/// A C library that Debian packages, found by pkg-config.
func system(_ name: String, _ pkgConfig: String, apt: [String]) -> Target {
    .systemLibrary(name: name, path: "Sources/C/\(name)", pkgConfig: pkgConfig, providers: [.apt(apt)])
}

func module(
    _ name: String, _ dependencies: [Target.Dependency] = [], exclude: [String] = [], resources: [Resource] = [],
    small: Bool = false
) -> Target {
    .target(
        name: name, dependencies: dependencies, exclude: exclude, resources: resources,
        swiftSettings: swiftSettings + (small ? smaller : []))
}

func executable(_ name: String, _ dependencies: [Target.Dependency], small: Bool = false) -> Target {
    .executableTarget(
        name: name, dependencies: dependencies, swiftSettings: swiftSettings + (small ? smaller : []))
}

func tests(
    _ module: Target.Dependency, named name: String, _ dependencies: [Target.Dependency] = [], exclude: [String] = []
) -> Target {
    .testTarget(
        name: "\(name)Tests", dependencies: [module, "TestSupport"] + dependencies, exclude: exclude,
        swiftSettings: swiftSettings)
}

/// The commit for `--version`, which `make` hands over; only text that a C string may hold as it is.
let commit = Context.environment["PTTD_COMMIT"].flatMap { text in
    !text.isEmpty && text.allSatisfy { $0.isASCII && ($0.isLetter || $0.isNumber || $0 == "-") } ? text : nil
}

/// Small rather than fast, for what nobody waits for. In shipped programs only: no other package could depend on one with such flags.
let smaller: [SwiftSetting] = commit == nil ? [] : [.unsafeFlags(["-Osize"])]

let log = Target.Dependency.product(name: "Logging", package: "swift-log")
let arguments = Target.Dependency.product(name: "ArgumentParser", package: "swift-argument-parser")
let lifecycle = Target.Dependency.product(name: "ServiceLifecycle", package: "swift-service-lifecycle")
let protobuf = Target.Dependency.product(name: "SwiftProtobuf", package: "swift-protobuf")
let hummingbird = Target.Dependency.product(name: "HummingbirdCore", package: "hummingbird")
let hummingbirdHTTP2 = Target.Dependency.product(name: "HummingbirdHTTP2", package: "hummingbird")
/// What stands below hummingbird, where the endpoint needs it by name.
let nio: [Target.Dependency] = [
    .product(name: "NIOCore", package: "swift-nio"), .product(name: "NIOPosix", package: "swift-nio"),
    .product(name: "NIOTLS", package: "swift-nio"), .product(name: "NIOSSL", package: "swift-nio-ssl"),
    .product(name: "HTTPTypes", package: "swift-http-types"),
]

/// The same for a client of WebSockets.
let webSocket: [Target.Dependency] = [
    .product(name: "NIOCore", package: "swift-nio"), .product(name: "NIOPosix", package: "swift-nio"),
    .product(name: "NIOTLS", package: "swift-nio"), .product(name: "NIOHTTP1", package: "swift-nio"),
    .product(name: "NIOWebSocket", package: "swift-nio"), .product(name: "NIOSSL", package: "swift-nio-ssl"),
]

let package = Package(
    name: "pttd",
    products: [
        .executable(name: "pttd", targets: ["pttd"]),
        .executable(name: "pttctl", targets: ["pttctl"]),
        .executable(name: "pttrelay", targets: ["pttrelay"]),
        .library(name: "PushToTalk", targets: ["PushToTalk"]),
    ],
    dependencies: [
        .package(url: "https://github.com/apple/swift-argument-parser", from: "1.8.2"),
        .package(url: "https://github.com/apple/swift-log", from: "1.16.2"),
        .package(url: "https://github.com/apple/swift-protobuf", from: "1.39.0", traits: []),
        .package(url: "https://github.com/swift-server/swift-service-lifecycle", from: "2.13.0"),
        // The relay's HTTP endpoint. Without traits: neither the whole of Foundation nor a configuration of its own.
        .package(url: "https://github.com/hummingbird-project/hummingbird", from: "2.28.1", traits: []),
        .package(url: "https://github.com/apple/swift-nio", from: "2.101.2"),
        .package(url: "https://github.com/apple/swift-nio-ssl", from: "2.37.6"),
        .package(url: "https://github.com/apple/swift-http-types", from: "1.8.0", traits: []),
    ],
    targets: [
        // Layer 0: C libraries, and the few macros and variadics that Swift cannot see.
        .target(name: "CLinux", path: "Sources/C/CLinux"),
        .target(
            name: "CBuild", path: "Sources/C/CBuild",
            cSettings: commit.map { [.define("PTTD_COMMIT", to: "\"\($0)\"")] }),
        // toml++ is headers only here (libtomlplusplus-dev), so nothing more has to be installed where the programs run.
        .target(
            name: "CTOML", path: "Sources/C/CTOML",
            cxxSettings: [.define("TOML_HEADER_ONLY", to: "1"), .define("TOML_ENABLE_FORMATTERS", to: "0")]),
        // Only its headers: the library is loaded where a sound server is asked for headsets.
        .target(name: "CPulse", path: "Sources/C/CPulse"),
        // The same: loaded where a cluster is configured.
        .target(name: "CNats", path: "Sources/C/CNats"),
        // Page/ of RelayWeb, embedded.
        .target(name: "CWebPage", path: "Sources/C/CWebPage", exclude: ["list"]),
        system("CDBus", "dbus-1", apt: ["libdbus-1-dev"]),
        system("CALSA", "alsa", apt: ["libasound2-dev"]),
        system("COpus", "opus", apt: ["libopus-dev"]),
        system("CSpeexDSP", "speexdsp", apt: ["libspeexdsp-dev"]),
        system("COgg", "ogg", apt: ["libogg-dev"]),
        system("CBluetooth", "bluez", apt: ["libbluetooth-dev"]),
        system("CEvdev", "libevdev", apt: ["libevdev-dev"]),
        system("CUdev", "libudev", apt: ["libudev-dev"]),
        system("CGnuTLS", "gnutls", apt: ["libgnutls28-dev"]),
        system("CSodium", "libsodium", apt: ["libsodium-dev"]),
        system("CQREncode", "libqrencode", apt: ["libqrencode-dev"]),
        system("CSQLite", "sqlite3", apt: ["libsqlite3-dev"]),
        system("CNgtcp2", "libngtcp2", apt: ["libngtcp2-dev", "libngtcp2-crypto-gnutls-dev"]),

        // Layer 1: what every module may use.
        module("MonotonicTime", ["CLinux"]),
        module("Version", ["CBuild"]),
        module("Vocabulary", ["MonotonicTime"]),
        module("Reactor", ["CLinux", "MonotonicTime"]),
        module("Files"),
        module("Cryptography", ["CGnuTLS", "CSodium", "Files"]),
        module("Settings", ["CTOML", "Files"]),
        module("Logs", ["CLinux", "Files", "MonotonicTime", log]),
        module("PlainText"),
        module("SQLite", ["CSQLite"], small: true),
        module("NATS", ["CNats"], small: true),
        module("Terminal", ["PlainText", "CLinux", "Files", "Logs", "MonotonicTime", "Reactor"]),

        // Layer 2: pure rules and protocols; one Swift face per system interface.
        module("PushToTalkCore", ["Vocabulary", "MonotonicTime"]),
        module("SFrame", ["Cryptography", "MonotonicTime"]),
        module(
            "RelayProtocol", ["Vocabulary", "MonotonicTime", "Cryptography", protobuf],
            // Not compiled here: the source of Generated/, and how it is made.
            exclude: ["relay.proto", "Makefile"]),
        module("QUIC", ["CLinux", "CGnuTLS", "CNgtcp2", "MonotonicTime", "Reactor", "Cryptography", log]),
        module("WebSockets", ["Reactor"]),
        module("WebSocketClient", ["WebSockets", "Reactor"] + webSocket),
        module("DBus", ["CDBus", "MonotonicTime", "Reactor", log]),
        module("LinuxInput", ["CEvdev", "CUdev", "CLinux", "MonotonicTime", "Reactor", log]),

        // Layer 3
        module("BlueZ", ["CBluetooth", "DBus", "MonotonicTime", "Reactor", log]),
        module("Calls", ["DBus", "MonotonicTime", "Reactor", log]),
        module("RealTimeKit", ["DBus", "CLinux", log]),
        module("Nearby", ["DBus", "RelayProtocol", "Cryptography", "MonotonicTime", "Reactor", log]),
        module(
            "PTTBus", ["DBus", "PushToTalkCore", "Vocabulary", "MonotonicTime", "Reactor", log],
            resources: [.embedInCode("Interfaces")]),
        module("SpokenPrompts", ["PlainText", "MonotonicTime", "Reactor"]),
        module("SystemUI", ["PlainText", "DBus", "PushToTalkCore", "MonotonicTime", "Reactor", log]),
        module("Audio", ["CALSA", "COpus", "CSpeexDSP", "CLinux", "Vocabulary", "MonotonicTime", log]),
        module(
            "RelayClient",
            [
                "QUIC", "WebSockets", "RelayProtocol", "SFrame", "Cryptography", "Vocabulary", "MonotonicTime",
                "Reactor", log,
            ]),

        // Layer 4
        module("Recordings", ["COgg", "COpus", "Audio", "Files", "Reactor", "Vocabulary", "MonotonicTime", log]),
        module(
            "Accessories",
            ["BlueZ", "DBus", "LinuxInput", "Settings", "Files", "Vocabulary", "MonotonicTime", "Reactor", log],
            resources: [.embedInCode("Profiles")]),
        module(
            "ChannelService",
            ["PushToTalkCore", "SpokenPrompts", "Audio", "Files", "Vocabulary", "MonotonicTime", "Reactor", log]),
        module("Headsets", ["Audio", "CLinux", "CPulse", "DBus", "MonotonicTime", "Reactor", log]),
        module("PushToTalk", ["PTTBus", "DBus", "PushToTalkCore", "MonotonicTime", "Reactor", log]),
        module(
            "RelayServer",
            [
                "CLinux", "QUIC", "RelayProtocol", "SFrame", "Cryptography", "Files", "Vocabulary", "MonotonicTime",
                "Reactor", log,
            ]),

        module("RelayStore", ["RelayProtocol", "Cryptography", "Files", "SQLite"], small: true),

        // Layer 5
        module(
            "RelayCluster",
            ["NATS", "RelayStore", "RelayProtocol", "QUIC", "Cryptography", "MonotonicTime", "Reactor", log],
            small: true),
        module(
            "AccessorySetup",
            ["Accessories", "BlueZ", "LinuxInput", "Settings", "Files", "Vocabulary", "MonotonicTime", "Reactor", log]),
        module(
            "Bridge",
            [
                "Accessories", "ChannelService", "RelayClient", "RelayProtocol", "PushToTalkCore", "Audio",
                "Vocabulary", "MonotonicTime", "Reactor", log,
            ]),
        module(
            "DaemonAPI", ["PTTBus", "DBus", "PushToTalkCore", "Vocabulary", "MonotonicTime", "Reactor", "Version", log]),

        module(
            "RelayHTTP",
            [
                "RelayServer", "RelayProtocol", "Cryptography", "Vocabulary", "MonotonicTime", hummingbird,
                hummingbirdHTTP2,
                lifecycle,
                log,
            ] + nio, resources: [.embedInCode("Page"), .embedInCode("API")]),
        module(
            "RelayWeb",
            [
                "RelayHTTP", "RelayServer", "RelayProtocol", "Cryptography", "MonotonicTime", "CWebPage", hummingbird,
                lifecycle, log, .product(name: "NIOHTTP1", package: "swift-nio"),
                .product(name: "NIOWebSocket", package: "swift-nio"),
            ] + nio, exclude: ["Page"]),

        // Layer 6: arguments, configuration, assembly.
        executable(
            "pttd",
            [
                "Bridge", "DaemonAPI", "Headsets", "Accessories", "AccessorySetup", "ChannelService", "RelayClient",
                "WebSockets", "WebSocketClient", "RelayServer",
                "BlueZ", "DBus",
                "Audio", "QUIC", "PushToTalkCore", "RelayProtocol", "Cryptography", "Settings", "Files",
                "Vocabulary", "MonotonicTime",
                "Reactor", "PTTBus", "Calls", "Nearby", "RealTimeKit", "SpokenPrompts", "SystemUI", "Recordings",
                "Logs", "Terminal", "Version",
                arguments,
                log,
            ]),
        executable(
            "pttctl",
            [
                "PTTBus", "PushToTalkCore", "Accessories", "Audio", "Settings", "DBus", "Terminal", "Vocabulary",
                "MonotonicTime", "Reactor",
                "Logs", "Version", arguments, log,
            ], small: true),
        executable(
            "pttrelay",
            [
                "RelayServer", "RelayHTTP", "RelayWeb", "RelayStore", "RelayCluster", "NATS", "RelayProtocol", "QUIC",
                "Cryptography", "Settings", "Files", "Reactor",
                "Logs", "Terminal", "MonotonicTime", "Version", "CQREncode", arguments, lifecycle, log,
            ], small: true),

        // Not a product: what forwarding costs (Benchmarks/RelayForward).
        .executableTarget(
            name: "relay-forward",
            dependencies: [
                "CLinux", "Cryptography", "Vocabulary", "MonotonicTime", "Reactor", "RelayClient", "RelayProtocol",
                "RelayServer",
                log,
            ], path: "Benchmarks/RelayForward", swiftSettings: swiftSettings),

        // Not a product: what asking the daemon over D-Bus costs, and that nothing is kept of it (Benchmarks/cycles).
        .executableTarget(
            name: "bus-cycles",
            dependencies: ["PTTBus", "DBus", "PushToTalkCore", "MonotonicTime", "Reactor", log],
            path: "Benchmarks/BusCycles", swiftSettings: swiftSettings),

        // Tests, one target per module.
        tests("Reactor", named: "Reactor", ["MonotonicTime", "CLinux"]),
        .executableTarget(
            name: "blocked-turn-probe", dependencies: ["MonotonicTime", "Reactor"],
            path: "Tests/Support/blocked-turn-probe", swiftSettings: swiftSettings),
        tests("Files", named: "Files"),
        tests("Cryptography", named: "Cryptography", ["Files", "CGnuTLS"]),
        tests("Settings", named: "Settings"),
        tests("Logs", named: "Logs", ["MonotonicTime", log]),
        tests("PlainText", named: "PlainText"),
        tests("SQLite", named: "SQLite"),
        tests("Terminal", named: "Terminal", ["MonotonicTime", "Reactor"]),
        tests("PushToTalkCore", named: "PushToTalkCore", ["Vocabulary", "MonotonicTime"]),
        tests("SFrame", named: "SFrame", ["Cryptography", "MonotonicTime"]),
        tests(
            "RelayProtocol", named: "RelayProtocol",
            ["SFrame", "Vocabulary", "MonotonicTime", "Cryptography", protobuf]),
        tests(
            "QUIC", named: "QUIC",
            ["MonotonicTime", "Reactor", "Cryptography", "CGnuTLS", "CLinux", "CNgtcp2", log]),
        tests(
            "WebSocketClient", named: "WebSocketClient",
            ["WebSockets", "WebTestSupport", "Cryptography", "Reactor"] + webSocket),
        tests("DBus", named: "DBus", ["BusTestSupport", "CDBus", "MonotonicTime", "Reactor", log]),
        tests("LinuxInput", named: "LinuxInput", ["CEvdev", "CLinux", "MonotonicTime", "Reactor", log]),
        tests("BlueZ", named: "BlueZ", ["FakeBlueZ", "BusTestSupport", "DBus", "MonotonicTime", "Reactor", log]),
        tests(
            "SystemUI", named: "SystemUI",
            ["BusTestSupport", "DBus", "PushToTalkCore", "MonotonicTime", "Reactor", log]),
        tests(
            "Calls", named: "Calls", ["BusTestSupport", "DBus", "MonotonicTime", "Reactor", log], exclude: ["modem.py"]),
        tests("RealTimeKit", named: "RealTimeKit", ["BusTestSupport", "DBus", "Reactor", "CLinux", log]),
        tests(
            "Nearby", named: "Nearby",
            ["BusTestSupport", "DBus", "RelayProtocol", "Cryptography", "MonotonicTime", "Reactor", log]),
        // Not a product: announces and lists channels for Tests/Nearby/network.
        .executableTarget(
            name: "nearby-prove",
            dependencies: [
                "Nearby", "DBus", "QUIC", "RelayProtocol", "Cryptography", "MonotonicTime", "Reactor", log,
            ], path: "Tests/Nearby/Command", swiftSettings: swiftSettings),
        tests("Audio", named: "Audio", ["Vocabulary", "MonotonicTime", "COpus", log]),
        tests(
            "Recordings", named: "Recordings",
            ["COgg", "COpus", "Audio", "Reactor", "Vocabulary", "MonotonicTime", log]),
        .target(name: "CAllocationCounter", path: "Tests/CAllocationCounter"),
        .executableTarget(
            name: "AudioProbe", dependencies: ["Audio", "CAllocationCounter", "Vocabulary", "MonotonicTime", log],
            path: "Tests/AudioProbe", swiftSettings: swiftSettings),
        .executableTarget(
            name: "RelayProbe",
            dependencies: [
                "RelayServer", "RelayClient", "RelayProtocol", "Cryptography", "Reactor", "Vocabulary", "MonotonicTime",
                "CLinux",
                "CAllocationCounter", log,
            ], path: "Tests/RelayProbe", swiftSettings: swiftSettings),
        tests(
            "Accessories", named: "Accessories",
            [
                "AccessoryTestSupport", "FakeBlueZ", "BusTestSupport", "BlueZ", "DBus", "LinuxInput", "Settings",
                "Files", "Vocabulary", "MonotonicTime", "Reactor", log,
            ],
            exclude: ["Traces"]),
        tests(
            "AccessorySetup", named: "AccessorySetup",
            [
                "Accessories", "AccessoryTestSupport", "FakeBlueZ", "BusTestSupport", "BlueZ", "DBus", "LinuxInput",
                "Settings", "Files", "Vocabulary", "MonotonicTime", "Reactor", log,
            ]),
        tests("SpokenPrompts", named: "SpokenPrompts", ["MonotonicTime", "Reactor"]),
        tests(
            "ChannelService", named: "ChannelService",
            ["PushToTalkCore", "SpokenPrompts", "Audio", "Files", "Vocabulary", "MonotonicTime", "Reactor"]),
        .executableTarget(
            name: "restoration-writer", dependencies: ["ChannelService", "PushToTalkCore"],
            path: "Tests/Support/restoration-writer", swiftSettings: swiftSettings),
        tests(
            "RelayServer", named: "Relay",
            [
                "RelayClient", "RelayHTTP", "RelayWeb", "WebSockets", "WebSocketClient", "WebTestSupport", "QUIC",
                "RelayProtocol", "SFrame", "Cryptography", "Audio", "Vocabulary", "MonotonicTime", "Reactor", "CLinux",
                "CNgtcp2", log,
            ]),
        tests("RelayWeb", named: "RelayWeb", [.product(name: "NIOHTTP1", package: "swift-nio")]),
        tests(
            "RelayHTTP", named: "RelayHTTP",
            [
                "RelayServer", "RelayClient", "RelayProtocol", "Cryptography", "Vocabulary", "MonotonicTime", "Reactor",
                lifecycle, log, .product(name: "HTTPTypes", package: "swift-http-types"),
            ]),
        tests("RelayStore", named: "RelayStore", ["RelayProtocol", "Cryptography", "Files", "SQLite"]),
        tests(
            "RelayCluster", named: "RelayCluster",
            ["NATS", "RelayStore", "RelayProtocol", "Cryptography", "CSodium", "MonotonicTime", "Reactor", log]),
        // Not a product: writes to a relay's records until it is killed.
        .executableTarget(
            name: "records-writer", dependencies: ["RelayStore", "RelayProtocol", "Cryptography"],
            path: "Tests/Support/records-writer", swiftSettings: swiftSettings),
        tests(
            "pttrelay", named: "pttrelay",
            [
                "RelayHTTP", "RelayStore", "RelayCluster", "NATS", "RelayServer", "RelayWeb", "RelayClient",
                "RelayProtocol", "WebSocketClient", "Cryptography", "Settings", "Files", "QUIC", "Logs", "Vocabulary",
                "MonotonicTime", "Reactor", lifecycle, "SQLite", log,
            ]),
        tests(
            "pttd", named: "pttd",
            [
                "Headsets", "FakeBlueZ", "BusTestSupport", "DBus", "DaemonAPI", "Files", "Settings", "Audio",
                "RelayClient",
                "WebSockets",
                "RelayProtocol",
                "RelayServer", "Accessories", "Bridge",
                "Calls", "ChannelService", "Recordings", "Cryptography", "PTTBus", "PushToTalkCore", "SpokenPrompts",
                "SystemUI", "Vocabulary", "MonotonicTime",
                "Reactor", log,
            ]),
        tests("Headsets", named: "Headsets", ["Audio", "BusTestSupport", "DBus", "MonotonicTime", "Reactor", log]),
        tests(
            "Bridge", named: "Bridge",
            [
                "Accessories", "ChannelService", "RelayClient", "RelayProtocol", "Cryptography", "PushToTalkCore",
                "Audio",
                "Vocabulary", "MonotonicTime", "Reactor",
            ]),
        tests(
            "DaemonAPI", named: "DaemonAPI",
            [
                "BusTestSupport", log, "PTTBus", "DBus", "PushToTalkCore", "Vocabulary", "MonotonicTime", "Reactor",
                "Version",
            ]),

        // The whole fleet in one thread (Tests/Fleet/README.md). It sees what modules keep to themselves: a release build of it needs
        // -enable-testing, as Tests/Fleet/run has it.
        .target(
            name: "FleetSimulator",
            dependencies: [
                "Accessories", "LinuxInput", "BlueZ", "Bridge", "ChannelService", "Audio", "Files", "PushToTalkCore",
                "Recordings", "RelayClient",
                "RelayServer", "RelayCluster", "RelayProtocol", "Nearby", "QUIC", "Cryptography", "Vocabulary",
                "MonotonicTime",
                "TestSupport", log,
            ], path: "Tests/Fleet/Simulator", swiftSettings: swiftSettings),
        .executableTarget(
            name: "fleet", dependencies: ["FleetSimulator", arguments], path: "Tests/Fleet/Command",
            swiftSettings: swiftSettings),
        tests("FleetSimulator", named: "Fleet"),

        // Compiled as an app's code is: without the settings of this package.
        .target(
            name: "PushToTalkSamples", dependencies: ["PushToTalk"], path: "Tests/PushToTalkSamples",
            swiftSettings: [.swiftLanguageMode(.v6)]),
        .executableTarget(
            name: "PushToTalkApp", dependencies: ["PushToTalk", arguments], path: "Tests/PushToTalkApp",
            swiftSettings: swiftSettings),
        tests(
            "PushToTalk", named: "PushToTalk",
            [
                "PushToTalkSamples", "PushToTalkApp", "pttd", "RelayServer", "RelayProtocol", "Cryptography",
                "BusTestSupport", "PTTBus", "DBus", "PushToTalkCore", "Vocabulary", "MonotonicTime", "Reactor", log,
            ]),
        tests(
            "pttctl", named: "pttctl",
            [
                "Accessories", "Audio", "BusTestSupport", "DaemonAPI", "PTTBus", "PushToTalkCore", "DBus", "Vocabulary",
                "MonotonicTime",
                "Reactor", "RelayClient", "RelayProtocol", "RelayServer", "Cryptography", "pttd",
                log,
            ]),

        // What the tests of several modules, the demonstration and the benchmark use.
        .target(
            name: "TestSupport", dependencies: [log], path: "Tests/Support/TestSupport", swiftSettings: swiftSettings),
        // Servers and proxies on loopback, for links over TLS.
        .target(
            name: "WebTestSupport", dependencies: ["Cryptography"] + webSocket, path: "Tests/Support/WebTestSupport",
            swiftSettings: swiftSettings),
        // A small BlueZ for the rules of accessories. It sees what the module keeps to itself.
        .target(
            name: "AccessoryTestSupport", dependencies: ["Accessories", "BlueZ", "MonotonicTime"],
            path: "Tests/Support/AccessoryTestSupport", swiftSettings: swiftSettings),
        .target(
            name: "BusTestSupport", dependencies: ["CDBus", "DBus", "MonotonicTime", "Reactor", log],
            path: "Tests/Support/BusTestSupport", swiftSettings: swiftSettings),
        .target(
            name: "FakeBlueZ", dependencies: ["DBus", "MonotonicTime", "Reactor", log],
            path: "Tests/Support/FakeBlueZ", swiftSettings: swiftSettings),
        .executableTarget(
            name: "system-ui-probe",
            dependencies: ["SystemUI", "DBus", "PushToTalkCore", "MonotonicTime", "Reactor", log],
            path: "Tests/Support/system-ui-probe", swiftSettings: swiftSettings),
        .executableTarget(
            name: "fake-bluez", dependencies: ["FakeBlueZ", "DBus", "MonotonicTime", "Reactor", arguments, log],
            path: "Tests/Support/fake-bluez", swiftSettings: swiftSettings),
    ],
    cxxLanguageStandard: .cxx17
)

// `PTTD_TESTS=Audio,QUIC swift test` builds the tests of these modules, and what they need: a short turn while working on one.
if let modules = Context.environment["PTTD_TESTS"]?.split(separator: ",").map({ "\($0)Tests" }) {
    var needed: Set<String> = []
    var names = modules
    while let name = names.popLast() {
        guard needed.insert(name).inserted else { continue }
        for dependency in package.targets.first(where: { $0.name == name })?.dependencies ?? [] {
            switch dependency {
            case .targetItem(let name, _), .byNameItem(let name, _): names.append(name)
            default: break
            }
        }
    }
    package.targets.removeAll { !needed.contains($0.name) }
    package.products = []
}
