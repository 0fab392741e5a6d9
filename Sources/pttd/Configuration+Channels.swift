// The channels of pttd.toml: one table `[channel]`, or a `[[channel]]` for each of several.
import Bridge
import ChannelService
import FoundationEssentials
import PushToTalkCore
import RelayProtocol
import Settings

/// A channel of the configuration.
struct ConfiguredChannel: Equatable {
    /// The invitation.
    var link: InvitationLink
    /// How it is called here.
    var name: String
    var talkTimeLimit: Duration
}

extension Configuration {
    /// The invitation of the first channel; nil: none is configured.
    var link: InvitationLink? { channels.first?.link }

    /// Reads the tables `[channel]`.
    ///
    /// ```toml
    /// [[channel]]                    # the first one is joined at the first start; [channel] if it is the only one
    /// link = "ptt://…"
    ///
    /// [[channel]]
    /// link = "ptt://…"
    /// name = "Workshop"              # default: as the invitation says
    /// talk-time-limit = "30s"        # default: that of the first
    /// ```
    mutating func readChannels(_ root: SettingsTable) {
        let tables = root.oneOrMoreTables("channel", countMax: ChannelDirectorStateMachine.channelsMax)
        for (index, table) in tables.enumerated() {
            let link = table.optional("link", Self.invitation) ?? nil
            let name = table.optional("name", Self.displayName)
            let limit = table.value(
                "talk-time-limit", .duration(in: .seconds(5) ... .seconds(3_600)),
                default: sound.rules.talkTimeLimit ?? .seconds(60))
            // What users and programs join has the limit of the first.
            if index == 0 { sound.rules.talkTimeLimit = limit }
            guard let link else {
                if tables.count > 1, !table.contains("link") {
                    table.problem(nil, "has no link", "add link = \"ptt://…\": 'pttrelay invite CHANNEL' prints it")
                }
                continue
            }
            let channel = ConfiguredChannel(link: link, name: name ?? link.channelName.text, talkTimeLimit: limit)
            check(channel, table)
            channels.append(channel)
        }
    }

    private func check(_ channel: ConfiguredChannel, _ table: SettingsTable) {
        if let other = channels.first(where: { $0.link.channel == channel.link.channel }) {
            table.problem("link", "leads to the same channel as the link of \"\(other.name)\"", "remove one of the two")
        } else if channels.contains(where: { $0.name == channel.name }) {
            table.problem(
                nil, "is called \"\(channel.name)\" like another one", "add name = \"…\" to tell the two apart")
        } else if ["up", "down"].contains(channel.name) {
            table.problem(
                nil, "is called \"\(channel.name)\", which is the word for the next channel or the one before",
                "add name = \"…\", another name for it")
        }
    }

    private static var invitation: SettingType<InvitationLink?> {
        SettingType<String>.string(lengthMax: InvitationLink.byteCountMaximum)
            .map(placeholder: nil) { text throws(SettingRefusal) in
                do throws(InvitationLinkError) {
                    return try InvitationLink(text)
                } catch {
                    throw SettingRefusal("\(error)", "")  // It says itself what to do.
                }
            }
    }
}

extension ChannelMembership {
    /// A channel of the configuration.
    init(_ channel: ConfiguredChannel) {
        self.init(configured: channel.link, name: channel.name)
        talkTimeLimit = channel.talkTimeLimit
    }

    /// The configured channel of this invitation.
    init(configured link: InvitationLink, name: String? = nil) {
        self.init(
            uuid: link.channel.uuid,
            descriptor: PTChannelDescriptor(name: name ?? link.channelName.text, image: nil), owner: nil,
            isConfigured: true, link: link)
    }
}
