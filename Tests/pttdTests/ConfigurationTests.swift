import Accessories
import Audio
import Bridge
import ChannelService
import FoundationEssentials
import Glibc
import Headsets
import PushToTalkCore
import Recordings
import RelayClient
import RelayProtocol
import Settings
import SpokenPrompts
import Testing
import Vocabulary
import WebSockets

@testable import pttd

@Suite struct ConfigurationTests {
    private func read(_ text: String, state: String? = nil) throws(SettingsError) -> Configuration {
        try SettingsFile.read(text: text, file: "pttd.toml") { Configuration.read($0, state: state) }
    }

    private func problems(_ text: String, state: String? = nil) -> [String] {
        do {
            _ = try read(text, state: state)
            return []
        } catch {
            return error.problems.map(\.description)
        }
    }

    @Test func anEmptyFileIsTheDefaults() throws {
        let configuration = try read("")
        #expect(configuration.link == nil)
        #expect(configuration.sound.microphone == .alsa("default"))
        #expect(configuration.sound.tail == .milliseconds(200))
        #expect(
            configuration.sound.capture.microphoneStart == .automatic && configuration.sound.capture.gain == .automatic)
        #expect(!configuration.sound.capture.suppressesNoise && !configuration.sound.cancelsEcho)
        #expect(configuration.sound.rules.talkTimeLimit == .seconds(60))
        #expect(configuration.sound.playsTones)
        #expect(configuration.policy == JoinPolicy())
        #expect(configuration.recordings == nil)
        #expect(configuration.desktop == nil)
        #expect(configuration.accessories.takesKnownDevices)
        #expect(!configuration.displayName.isEmpty)
    }

    @Test func `relays are reached as the file says, and by the environment's proxy otherwise`() throws {
        var ignored: [String] = []
        setenv("HTTPS_PROXY", "http://other:1", 1)
        setenv("NO_PROXY", "relay.lan", 1)
        defer { for name in ["HTTPS_PROXY", "NO_PROXY"] { unsetenv(name) } }
        let usual = try read("").relayNetwork { ignored.append($0) }
        #expect(usual.transport == .automatic)
        #expect(usual.proxy.proxy(for: "relay.example") == HTTPProxy(host: "other", port: 1))
        #expect(usual.proxy.proxy(for: "relay.lan") == nil)
        let named = try read("[relay]\ntransport = \"tls\"\nhttp-proxy = \"http://ann:secret@proxy.example:3128\"")
            .relayNetwork { ignored.append($0) }
        #expect(named.transport == .tls && named.proxy.proxy(for: "relay.lan")?.description == "proxy.example:3128")
        let none = try read("[relay]\nhttp-proxy = \"none\"").relayNetwork { ignored.append($0) }
        #expect(none.proxy == .none && ignored.isEmpty)
        setenv("HTTPS_PROXY", "https://secure", 1)
        #expect(try read("").relayNetwork { ignored.append($0) }.proxy == .none)
        #expect(ignored.count == 1 && ignored[0].hasPrefix("HTTPS_PROXY is not used"))
        #expect(problems("[relay]\ntransport = \"udp\"")[0].contains("write \"auto\""))
        let wrong = problems("[relay]\nhttp-proxy = \"http://ann:secret@\"")
        #expect(wrong.count == 1 && !wrong[0].contains("secret"), "\(wrong)")
    }

    @Test func everythingThatCanBeSaidIsUnderstood() throws {
        let configuration = try read(
            """
            [daemon]
            name = "Gate 3"
            bus = "unix:path=/run/one"
            bluez-bus = "system"
            state = "/srv/pttd"
            [channel]
            link = "ptt://192.0.2.1:4433/Team?channel=127face1-cb21-11e5-93d0-0002a5d5c51b&token=AAAAAAAAAAAAAAAAAAAAAA&pin=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
            talk-time-limit = "2min"
            [audio]
            microphone = "plughw:Headset"
            bluetooth-link = "kept"
            fallback-microphone = "plughw:CARD=PCH"
            fallback-speaker = "default"
            microphone-watch = false
            microphone-start = "when-heard"
            gain = "-6 dB"
            noise-suppression = true
            echo-cancellation = true
            speaker = "wav:/tmp/heard.wav"
            release-tail = "350ms"
            tones = false
            voice = "espeak-ng"
            voice-language = "fr-CA"
            announce-talker = true
            [policy]
            join = false
            applications = ["com.example.*", "org.talk"]
            hours = ["08:00-18:00", "22:00-06:00"]
            [recordings]
            folder = "/srv/talk"
            keep-days = 7
            keep-megabytes = 64
            own = true
            [ui]
            desktop = false
            [accessories]
            automatic = false
            [accessory.vest]
            address = "c4:11:22:33:44:55"
            gesture = "toggle"
            sound = "c4:11:22:33:44:56"
            """)
        #expect(configuration.displayName == "Gate 3")
        #expect(configuration.bus == .address("unix:path=/run/one"))
        #expect(configuration.blueZBus == .system)
        #expect(configuration.state == "/srv/pttd")
        #expect(configuration.link?.port == 4433)
        #expect(configuration.sound.rules.talkTimeLimit == .seconds(120))
        #expect(configuration.sound.microphone == .alsa("plughw:Headset"))
        #expect(!configuration.followsMicrophone && !configuration.followsSpeaker)
        #expect(configuration.bluetoothLink == .kept)
        #expect(configuration.accessories.accessories.first?.sound == .device(address: "C4:11:22:33:44:56"))
        #expect(configuration.sound.speaker == .wav(path: "/tmp/heard.wav"))
        #expect(configuration.sound.fallbackMicrophone == .alsa("plughw:CARD=PCH"))
        #expect(configuration.sound.fallbackSpeaker == .alsa("default"))
        #expect(!configuration.sound.capture.isWatched)
        #expect(configuration.sound.tail == .milliseconds(350))
        #expect(configuration.sound.capture.microphoneStart == .whenHeard)
        #expect(configuration.sound.capture.gain == .fixed(decibels: -6))
        #expect(configuration.sound.capture.suppressesNoise && configuration.sound.cancelsEcho)
        #expect(!configuration.sound.playsTones)
        #expect(
            configuration.prompts
                == PromptSettings(program: .espeak, language: .french, announcesTalker: true))
        #expect(!configuration.policy.allowsJoining)
        #expect(configuration.policy.applications == ["com.example.*", "org.talk"])
        #expect(configuration.policy.hours == [JoinPolicy.Hours("08:00-18:00"), JoinPolicy.Hours("22:00-06:00")])
        #expect(configuration.recordings?.folder == "/srv/talk")
        #expect(configuration.recordings?.age == .seconds(7 * 86_400))
        #expect(configuration.recordings?.byteCountMax == 64_000_000)
        #expect(configuration.recordings?.includesOwn == true)
        #expect(configuration.desktop == false)
        #expect(!configuration.accessories.takesKnownDevices)
        #expect(configuration.accessories.accessories.first?.address == "C4:11:22:33:44:55")
        #expect(configuration.accessories.accessories.first?.gesture == .toggle)
    }

    @Test func `what is worn is used unless a device is named, and the fallback stands in for it`() throws {
        let defaults = try read("")
        #expect(defaults.followsMicrophone && defaults.followsSpeaker && defaults.bluetoothLink == .onPress)
        #expect(defaults.sound.microphone == .alsa("default"))
        let worn = try read(
            """
            [audio]
            microphone = "accessory"
            fallback-microphone = "plughw:CARD=PCH"
            speaker = "accessory"
            """)
        #expect(worn.followsMicrophone && worn.followsSpeaker)
        #expect(worn.sound.microphone == .alsa("plughw:CARD=PCH") && worn.sound.fallbackMicrophone == nil)
        #expect(worn.sound.speaker == .alsa("default"))
        let half = try read("[audio]\nmicrophone = \"plughw:CARD=PCH\"")
        #expect(!half.followsMicrophone && half.followsSpeaker)
    }

    @Test(arguments: [
        ("[audoi]\ntones = true", "pttd.toml:1:2", "did you mean 'audio'?"),
        ("[audio]\ngain = \"31 dB\"", "pttd.toml:2:8", "from -20 to 30"),
        ("[audio]\nmicrophone-start = \"soon\"", "pttd.toml:2:20", "when-heard"),
        ("[audio]\nvoice = \"espeak\"", "pttd.toml:2:9", "\"espeak-ng\", \"speech-dispatcher\""),
        ("[audio]\nvoice = \"espeak-ng\"\nvoice-language = \"French\"", "pttd.toml:3:18", "\"fr\""),
        ("[audio]\nvoice-language = \"fr\"", "pttd.toml:2:18", "voice = \"espeak-ng\""),
        ("[audio]\nannounce-talker = true", "pttd.toml:2:19", "voice = \"espeak-ng\""),
        ("[audio]\nvoice = \"espeak-ng\"\nannounce-talker = 1", "pttd.toml:3:19", "true"),
        ("[audio]\nbluetooth-link = \"always\"", "pttd.toml:2:18", "\"kept\""),
        ("[accessory.vest]\nname = \"x\"\nsound = \"yes\"", "pttd.toml:3:9", "\"none\""),
        ("[audio]\nmicrofone = \"x\"", "pttd.toml:2:1", "did you mean 'microphone'?"),
        ("[audio]\nrelease-tail = 200", "pttd.toml:2:16", "with its unit"),
        ("[audio]\nrelease-tail = \"1h\"", "pttd.toml:2:16", "out of range"),
        ("[audio]\nspeaker = \"/tmp/x.wav\"", "pttd.toml:2:11", "wav:/tmp/x.wav"),
        ("[daemon]\nbus = \"syste\"", "pttd.toml:2:7", "\"system\""),
        ("[daemon]\nname = \"\"", "pttd.toml:2:8", "is empty"),
        ("[channel]\nlink = \"http://example\"", "pttd.toml:2:8", "ptt://"),
        ("[channel]\nlink = \"ptt://h:1/T?channel=x\"", "pttd.toml:2:8", "channel"),
        ("[channel]\ntalk-time-limit = \"1s\"", "pttd.toml:2:19", "out of range"),
        ("[accessory.vest]\naddress = \"C4:11\"", "pttd.toml:2:11", "00:11:22:33:44:55"),
        ("[accessory.vest]\ngesture = \"hold\"", "pttd.toml:1:", "address"),
        ("[accessory.vest]\nname = \"x\"\nprofile = \"pttz\"", "pttd.toml:3:11", "ptt-z"),
        ("[policy]\nhours = [\"8-18\"]", "pttd.toml:2:10", "08:00-18:00"),
        ("[policy]\napplications = [\"com.*.Talk\"]", "pttd.toml:2:17", "com.example.*"),
        ("[policy]\njoin = \"no\"", "pttd.toml:2:8", "true"),
        ("[ui]\ndesktop = \"auto\"", "pttd.toml:2:11", "true"),
        ("[recordings]\nkeep-days = 7", "pttd.toml:1:", "add folder"),
        ("[recordings]\nfolder = \"../talk\"", "pttd.toml:2:10", "/srv/talk"),
        ("[recordings]\nfolder = \"talk\"\nkeep-days = 0", "pttd.toml:3:13", "from 1"),
        ("[recordings]\nfolder = \"talk\"\nkeep-megabytes = \"1GB\"", "pttd.toml:3:18", "integer"),
        ("[recordings]\nfolder = \"talk\"\nonw = true", "pttd.toml:3:1", "did you mean 'own'?"),
        ("[daemon\n", "pttd.toml:1:", "toml.io"),
    ])
    func aMistakeIsPlacedAndExplained(text: String, place: String, advice: String) throws {
        let found = problems(text)
        #expect(found.contains { $0.hasPrefix(place) && $0.contains(advice) }, "\(found)")
    }

    @Test func allMistakesAreToldAtOnce() {
        #expect(problems("[audio]\ntones = 1\nspeeker = \"a\"\n[daemon]\nbus = 7").count == 3)
    }

    private func link(_ name: String, _ channel: Int) -> String {
        "ptt://192.0.2.1:4433/\(name)?channel=127face1-cb21-11e5-93d0-0002a5d5c51\(channel)&token=AAAAAAAAAAAAAAAAAAAAAA&pin=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
    }

    @Test func severalChannelsHaveATableEach() throws {
        let configuration = try read(
            """
            [[channel]]
            link = "\(link("Team", 1))"
            talk-time-limit = "30s"
            [[channel]]
            link = "\(link("Workshop", 2))"
            name = "Garage"
            [[channel]]
            link = "\(link("Gate", 3))"
            talk-time-limit = "2min"
            """)
        #expect(configuration.channels.map(\.name) == ["Team", "Garage", "Gate"])
        #expect(configuration.channels.map(\.talkTimeLimit) == [.seconds(30), .seconds(30), .seconds(120)])
        #expect(configuration.sound.rules.talkTimeLimit == .seconds(30))
        #expect(configuration.link == configuration.channels[0].link)
        let memberships = configuration.channels.map { ChannelMembership($0) }
        #expect(memberships.map(\.descriptor.name) == ["Team", "Garage", "Gate"])
        #expect(memberships.allSatisfy { $0.isConfigured && $0.link != nil })
    }

    @Test func channelsThatCannotBeToldApartAreMistakes() {
        let told = problems(
            """
            [[channel]]
            link = "\(link("Team", 1))"
            [[channel]]
            link = "\(link("Other", 1))"
            [[channel]]
            link = "\(link("Team", 2))"
            [[channel]]
            link = "\(link("up", 3))"
            [[channel]]
            talk-time-limit = "30s"
            """)
        #expect(told.count == 4, "\(told)")
        for (problem, words) in zip(told, ["same channel", "like another one", "the next channel", "has no link"]) {
            #expect(problem.contains(words))
        }
        let many = (0..<17).map { _ in "[[channel]]\nlink = \"x\"\n" }.joined()
        #expect(problems(many).contains { $0.contains("16 are the limit") })
    }

    @Test func checkingNamesWhatRunningWouldLeaveOut() throws {
        let state = try TemporaryDirectory()
        let stored = state.path + "/accessories.toml"
        try Data("[accessory.old]\naddress = \"C4:00:00:00:00:09\"\ncolour = 1\n".utf8).write(to: URL(filePath: stored))
        let configuration = try read(
            """
            [accessories]
            profiles = "\(state.path)/nowhere"
            [accessory.one]
            address = "c4:00:00:00:00:01"
            [accessory.two]
            address = "C4:00:00:00:00:01"
            """, state: state.path)
        let told = configuration.problems()
        #expect(told.count == 3, "\(told)")
        #expect(told.contains { $0.contains("nowhere is not a directory") })
        #expect(told.contains { $0.contains("\"one\" and \"two\" have the same address C4:00:00:00:00:01") })
        #expect(told.contains { $0.contains(stored) && $0.contains("colour") })
        #expect(FileManager.default.fileExists(atPath: stored), "looking changes nothing")
        #expect(try read("", state: state.path + "/none").problems() == [])
    }

    @Test func `a user's state stays beside the configuration only where an earlier version has put its key there`()
        throws
    {
        let home = try TemporaryDirectory()
        func place() -> String {
            Configuration.usersStateDirectory(stateHome: home.path + "/state", configurationHome: home.path + "/config")
        }
        #expect(place() == home.path + "/state/pttd")
        for folder in ["/config", "/config/pttd", "/state", "/state/pttd"] {
            #expect(mkdir(home.path + folder, 0o700) == 0)
        }
        try Data().write(to: URL(filePath: home.path + "/config/pttd/pttd.toml"))
        #expect(place() == home.path + "/state/pttd")
        try Data().write(to: URL(filePath: home.path + "/config/pttd/identity.pem"))
        #expect(place() == home.path + "/config/pttd")
    }

    @Test
    func `an accessory may have a profile that was learned, and one that cannot be used is told with its mistake`()
        throws
    {
        let state = try TemporaryDirectory()
        let folder = state.path + "/profiles.d"
        #expect(mkdir(folder, 0o700) == 0)
        let crane = """
            id = "crane"
            title = "Crane"
            confidence = "capture"
            sources = ["learned"]
            bonding = "as-needed"
            [match]
            names = ["CRANE-7"]
            [[input]]
            service = "0000fff0-0000-1000-8000-00805f9b34fb"
            characteristic = "0000fff1-0000-1000-8000-00805f9b34fb"
            decode = "bits"
            [[input.control]]
            name = "ptt"
            bit = 0x01

            """
        try Data(crane.utf8).write(to: URL(filePath: folder + "/crane.toml"))
        let mast = crane.replacing("id = \"crane\"", with: "id = \"mast\"\ncolour = 1")
        try Data(mast.utf8).write(to: URL(filePath: folder + "/mast.toml"))
        func accessory(_ profile: String) -> String {
            "[accessory.desk]\naddress = \"c4:00:00:00:00:01\"\nprofile = \"\(profile)\"\n"
        }
        let option = try read(accessory("crane"), state: state.path)
        #expect(option.accessories.accessories.map(\.profileID) == ["crane"])
        #expect(option.accessories.library["crane"]?.title == "Crane" && option.accessories.profileProblems.isEmpty)
        let setting = "[daemon]\nstate = \"\(state.path)\"\n"
        #expect(try read(setting + accessory("crane")).stateDirectory == state.path)
        #expect(problems(setting + accessory("crane"), state: state.path + "/none").count == 1, "the option counts")
        for (text, place) in [
            (accessory("mast"), state.path), ("[accessories]\nprofiles = \"\(folder)\"\n" + accessory("mast"), "/none"),
        ] {
            let told = problems(text, state: place)
            #expect(told.count == 1 && told[0].contains("accessory.desk.profile: \"mast\" cannot be used"), "\(told)")
            #expect(told[0].contains("\(folder)/mast.toml:2:1: colour"), "\(told)")
        }
    }
}
