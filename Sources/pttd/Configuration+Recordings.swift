// The table `[recordings]` of pttd.toml, and the connection from speech to the recorder.
import Audio
import ChannelService
import Glibc
import PushToTalkCore
import Recordings
import Settings
import Vocabulary

extension Configuration {
    /// Reads the table `[recordings]`, without which nothing is kept.
    ///
    /// ```toml
    /// [recordings]
    /// folder = "/srv/talk"           # or a name in the state directory
    /// keep-days = 30
    /// keep-megabytes = 500
    /// own = false
    /// ```
    mutating func readRecordings(_ root: SettingsTable) {
        guard let table = root.table("recordings") else { return }
        let folder = table.optional("folder", Self.folder)
        let days = table.value("keep-days", .integer(in: 1...3_650), default: 30)
        let megabytes = table.value("keep-megabytes", .integer(in: 1...1_000_000), default: 500)
        let own = table.value("own", .boolean, default: false)
        guard let folder else {
            if !table.contains("folder") {
                table.problem(
                    nil, "has no folder",
                    "add folder = \"recordings\", a name in the state directory, or remove the table")
            }
            return
        }
        recordings = RecordingSettings(
            folder: folder, age: .seconds(days * 86_400), byteCountMax: megabytes * 1_000_000, includesOwn: own)
    }

    private static var folder: SettingType<String> {
        .text(
            lengthMax: 1_024, placeholder: "", isNot: "a folder",
            "write a path such as \"/srv/talk\", or a name in the state directory"
        ) { text in
            let parts = text.split(separator: "/")
            return parts.isEmpty || parts.contains { [".", "..", "~"].contains($0) } || text.contains("\0") ? nil : text
        }
    }

    /// The settings of the recordings, their folder with its whole path.
    func recordingSettings(state: String) -> RecordingSettings? {
        guard var settings = recordings else { return nil }
        if !settings.folder.hasPrefix("/") { settings.folder = state + "/" + settings.folder }
        return settings
    }
}

extension Recorder {
    /// Speech passes.
    ///
    /// - Parameter name: This device's, for own speech.
    func take(_ event: SpeechEvent, of name: String) {
        switch event {
        case .began(let participant, let channel, let burst): began(voice(burst), label(participant.name, channel))
        case .packet(let packet, let burst): self.packet(voice(burst), packet)
        case .ended(let burst): ended(voice(burst))
        case .left: othersEnded()
        case .ownFrame(let frame, let channel):
            guard includesOwn else { return }
            if frame.isFirst { began(.own, label(name, channel)) }
            packet(.own, ReceivedFrame(own: frame))
        case .ownEnded(let erased): if erased { discarded(.own) } else { ended(.own) }
        }
    }

    private nonisolated func voice(_ burst: TalkBurst?) -> Voice { burst.map { .beside($0.number) } ?? .other }

    private func label(_ talker: String, _ channel: String) -> RecordingLabel {
        RecordingLabel(talker: talker, channel: channel, secondsSince1970: Int(time(nil)))
    }
}
